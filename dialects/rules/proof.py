"""Proving a rule by running it: cut the operands, run every rank's call, put the results together, compare.

A proof covers, for one call on real tensors: nothing cut; each factor cut; each pair of factors; all factors at
once; and each ``linear`` set on operands split into random terms. A factor that stands after others in a dim is
cut with those cut whole, as blocks of dims demand.

A result that lacks a factor which is not reduced must come out equal on all ranks. That is checked by execution,
not by form: it is right for the results of a ``_foreach`` op, or of ``new_zeros``, that do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product
from math import prod
from typing import Any

import torch
from torch import Tensor

from shardc.diagnostics.rules import NoRuleToProve, UnsoundRule
from shardc.dialects.aten.call import DEVICE, Device, OpCall, fill, leaves, replace_leaves
from shardc.dialects.aten.schema import overload, parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.sharding import REDUCTIONS, Sharding
from shardc.dialects.rules.rule import (
    Assignment,
    Rule,
    find_rule,
    operand_shardings,
    representable,
    result_shardings,
)

Coordinate = Mapping[str, int]  # where a rank stands on each cut factor

TOLERANCES = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4}
"""Relative to the largest magnitude of the whole result, or to 1 if that is less."""
COARSE = 5e-2  # the tolerance of 16-bit floats: three random terms of one round at several times its size
MOST_RANKS = 256  # a cut over more ranks is left out; small samples stay far below
HUGE = 1e12  # what masks fill with is larger
COMBINE = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


@dataclass(frozen=True)
class Proof:
    """What was proved of one call: its rule, and the cuts that were run (ways of each factor)."""

    call: OpCall
    rule: Rule
    cuts: tuple[Mapping[str, int], ...]
    unreached: tuple[str, ...]
    """Factors that may be cut but were in no cut: their size is 1, or a factor before them must stay whole."""

    def __str__(self) -> str:
        return f"{self.call.target} {self.rule}: {len(self.cuts)} cuts, {len(self.rule.linear)} linear sets"


@dataclass
class EagerLocal:
    """A rule's :class:`Local` on real tensors: ``emit`` runs the operator, offsets are ints."""

    spec: OpCall
    args: tuple[Any, ...]
    results: tuple[TensorType | None, ...]
    sizes: Mapping[str, int]
    cut: Mapping[str, int]
    coordinate: Coordinate

    def size(self, factor: str) -> int:
        return self.sizes[factor] // self.ways(factor)

    def ways(self, factor: str) -> int:
        return self.cut.get(factor, 1)

    def offset(self, factor: str, scale: int = 1, base: Any = 0) -> Any:
        return base + scale * self.coordinate.get(factor, 0) * self.size(factor)

    def emit(self, target: str, *args: Any) -> Any:
        return run_operator(target, args)


def run_operator(target: str, args: Sequence[Any]) -> Any:
    """Run an ATen operator on real tensors; ``args`` in schema order, keyword-only ones included, as IR has them."""
    positional, keywords = [], {}
    for arg, (name, kind, keyword_only) in zip(args, parameters(target), strict=False):
        if isinstance(arg, Device):
            arg = torch.device("cpu")
        elif isinstance(arg, int) and "Layout" in kind:
            arg = torch.strided
        elif isinstance(arg, int) and "MemoryFormat" in kind:
            arg = _MEMORY_FORMATS[arg]
        if keyword_only:
            keywords[name] = arg
        else:
            positional.append(arg)
    return overload(target)(*positional, **keywords)


def call_of(target: str, args: Sequence[Any]) -> tuple[OpCall, tuple[Any, ...], list[Any]]:
    """The call that ``target`` makes on real tensors, its completed arguments and its whole results.

    Trailing arguments may be left to their defaults. A result that the operator leaves out (None) stays None.
    """
    defaults = [a.default_value for a in overload(target)._schema.arguments]
    full = _tuples((*args, *defaults[len(args) :]))
    made = run_operator(target, full)
    whole = list(made) if isinstance(made, tuple | list) else [made]
    spec = replace_leaves(full, _as_in_ir)
    return OpCall(target, spec, tuple(_type(r) for r in whole)), full, whole


def prove(
    target: str,
    args: Sequence[Any],
    *,
    rule: Rule | None = None,
    ways: tuple[int, ...] = (2,),
    pairs: bool = True,
    values: bool = True,
    tolerance: float | None = None,
) -> Proof:
    """Prove the rule of ``target`` on ``args``: real tensors and constants in schema order, lists as tuples or lists.

    Each factor is cut into each of ``ways`` that divides it, or into its smallest prime where none does. ``values``
    False compares shapes and dtypes only (``empty``). ``tolerance`` is relative; the default goes by dtype.
    ``rule`` stands in for the registered one. Raises UnsoundRule, or NoRuleToProve if the call has none.
    """
    call, full, whole = call_of(target, args)
    rule = rule or find_rule(call)
    if rule is None:
        raise NoRuleToProve(op=target, args=_tuples(call.args))
    trial = _Trial(call, rule, full, whole, values, tolerance)
    trial.check_form()
    cuts = list(_cuts(rule, ways, pairs))
    for cut in cuts:
        trial.check_cut(cut)
    for operands in rule.linear:
        trial.check_linear(operands)
    reached = {f for cut in cuts for f in cut}
    return Proof(call, rule, tuple(cuts), tuple(f for f in rule.factors if f not in reached))


def sample(*shape: int, dtype: torch.dtype = torch.float64, below: int = 5, seed: int = 0) -> Tensor:
    """A deterministic tensor for proofs: normal floats, integers in [0, below), or both truth values by turns at random."""
    generator = torch.Generator().manual_seed(seed + 1000 * len(shape) + sum(shape))
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return (torch.randperm(prod(shape), generator=generator) % 2).view(shape).to(dtype)
    return torch.randint(0, below, shape, generator=generator).to(dtype)


@dataclass(frozen=True)
class _Trial:
    """One call under proof: its rule, its real arguments and what it makes of them when whole."""

    call: OpCall
    rule: Rule
    args: tuple[Any, ...]
    whole: list[Any]
    values: bool
    tolerance: float | None

    def fail(self, problem: str, cut: Mapping[str, int] | None = None) -> UnsoundRule:
        text = ", ".join(f"{f} into {n}" for f, n in (cut or {}).items()) or "nothing"
        return UnsoundRule(op=self.call.target, rule=self.rule, problem=problem, cut=text)

    def check_form(self) -> None:
        """Factors are known, fit the shapes and stand once in a tensor; kinds and operand numbers exist."""
        rule, call = self.rule, self.call
        for kind, dims, types in (("operand", rule.operands, call.tensors), ("result", rule.results, call.results)):
            if len(dims) != len(types):
                raise self.fail(f"it has {len(dims)} {kind}s, the call {len(types)}")
            for i, (tensor, type_) in enumerate(zip(dims, types, strict=True)):
                self._check_tensor(f"{kind} {i}", tensor, type_)
        known = {f for dims in (*rule.operands, *rule.results) for dim in dims for f in dim}
        for place, names in (("sizes", rule.sizes), ("reduce", rule.reduce), ("replicate", rule.replicate)):
            for name in names:
                if name not in known:
                    raise self.fail(f"{place} names the factor {name!r}, which no tensor has")
        for name, kind in rule.reduce.items():
            if kind not in REDUCTIONS:
                raise self.fail(f"reduction {kind!r} of factor {name!r} is not one of {', '.join(REDUCTIONS)}")

    def _check_tensor(self, what: str, dims: tuple[tuple[str, ...], ...], type_: TensorType | None) -> None:
        shape = () if type_ is None else type_.shape
        if len(dims) != len(shape):
            raise self.fail(f"{what} has {len(dims)} dims in it, {len(shape)} in the call")
        names = [f for dim in dims for f in dim]
        for f in names:
            if f not in self.rule.sizes:
                raise self.fail(f"factor {f!r} of {what} has no size")
            if names.count(f) > 1:
                raise self.fail(f"factor {f!r} stands twice in {what}")
        for d, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            product_ = prod(self.rule.sizes[f] for f in dim)
            if dim and product_ != size:
                raise self.fail(f"dim {d} of {what} has {size} elements, its factors {' '.join(dim)} make {product_}")

    def check_cut(self, cut: Mapping[str, int]) -> None:
        assignment = {f: (Axis(f, 1, n),) for f, n in cut.items()}
        if not all(representable(d, assignment, self.rule.sizes) for d in (*self.rule.operands, *self.rule.results)):
            raise self.fail("blocks of dims can't say the cut", cut)
        made = self.run(assignment, self.args)
        shardings = result_shardings(self.rule, assignment)
        for r, (sharding, whole, values) in enumerate(zip(shardings, self.whole, made, strict=True)):
            if whole is not None:
                self._compare(f"result {r}", whole, self._assemble(r, sharding, whole, values, cut), cut)

    def run(self, assignment: Assignment, args: tuple[Any, ...]) -> list[list[tuple[Coordinate, Any]]]:
        """Run the call on every rank. For each result, each rank's coordinate and its value."""
        cut = {f: axes[0].size for f, axes in assignment.items()}
        operands = operand_shardings(self.rule, assignment)
        shardings = result_shardings(self.rule, assignment)
        local_types = tuple(
            type_ and type_.with_shape(s.local_shape(type_.shape))
            for type_, s in zip(self.call.results, shardings, strict=True)
        )
        made: list[list[tuple[Coordinate, Any]]] = [[] for _ in self.call.results]
        for place in product(*(range(n) for n in cut.values())):
            coordinate = dict(zip(cut, place, strict=True))
            tensors = [_block(t, s, coordinate) for t, s in zip(_tensor_leaves(args), operands, strict=True)]
            local_args = fill(self.call.args, tensors)
            local = EagerLocal(self.call, local_args, local_types, self.rule.sizes, cut, coordinate)
            values = self._run_local(local)
            self._check_types(values, local_types, cut)
            for r, value in enumerate(values):
                made[r].append((coordinate, value))
        return made

    def _run_local(self, local: EagerLocal) -> list[Any]:
        try:
            if self.rule.lower is not None:
                return list(self.rule.lower(local))
            made = run_operator(self.call.target, local.args)
            return list(made) if isinstance(made, tuple | list) else [made]
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            at = ", ".join(f"{f}={i}" for f, i in local.coordinate.items()) or "the only rank"
            raise self.fail(f"the local call failed at {at}: {str(error)[:400]}", local.cut) from error

    def _check_types(self, values: Sequence[Any], types: Sequence[TensorType | None], cut: Mapping[str, int]) -> None:
        if len(values) != len(types):
            raise self.fail(f"lower gives {len(values)} results, the call has {len(types)}", cut)
        for r, (value, type_) in enumerate(zip(values, types, strict=True)):
            if type_ is not None and _type(value) != type_:
                raise self.fail(f"local result {r} is {_type(value)}, the rule says {type_}", cut)

    def _assemble(
        self, r: int, sharding: Sharding, whole: Tensor, made: list[tuple[Coordinate, Any]], cut: Mapping[str, int]
    ) -> Tensor:
        """One tensor from all ranks' blocks: replicas checked equal, terms combined, blocks put in their places."""
        kinds = {reduction for reduction, _ in sharding.partial}
        if len(kinds) > 1:
            raise self.fail(f"result {r} is partial with two reductions", cut)
        blocks: dict[tuple[int, ...], dict[tuple[int, ...], Tensor]] = {}
        for coordinate, value in made:
            place = tuple(_index(axes, coordinate) for axes in sharding.dims)
            term = tuple(coordinate[axis.name] for _, axis in sharding.partial)
            terms = blocks.setdefault(place, {})
            known = terms.setdefault(term, value)
            if self.values and not torch.equal(known.nan_to_num(), value.nan_to_num()):
                lacking = ", ".join(f for f in cut if f not in {a.name for a in sharding.used})
                raise self.fail(f"result {r} lacks {lacking}, which is not reduced, but ranks disagree on it", cut)
        out = torch.empty_like(whole)
        for place, terms in blocks.items():
            first, *rest = terms.values()
            for term in rest:
                first = COMBINE[next(iter(kinds))](first, term)
            _block(out, sharding, place).copy_(first)
        return out

    def _compare(self, what: str, whole: Tensor, found: Tensor, cut: Mapping[str, int] | None = None) -> None:
        if not self.values:
            return
        error = _error(whole, found)
        limit = self._tolerance(whole.dtype)
        if not error <= limit:
            raise self.fail(f"{what} is off by {error:.3g} of its largest magnitude, more than {limit:.3g}", cut)

    def _tolerance(self, dtype: torch.dtype) -> float:
        """By the coarsest floating dtype of the result and the operands; integers are exact."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return 0.0
        if self.tolerance is not None:
            return self.tolerance
        dtypes = {dtype, *(t.dtype for t in self.call.tensors)}
        return max(TOLERANCES.get(d, COARSE) for d in dtypes if d.is_floating_point or d.is_complex)

    def check_linear(self, operands: frozenset[int]) -> None:
        """Split the operands into three random terms each; the results of the terms must add up to the whole."""
        names = str(set(sorted(operands)))
        tensors = list(_tensor_leaves(self.args))
        if not all(0 <= i < len(tensors) for i in operands) or not operands:
            raise self.fail(f"the linear set {names} names no operands of the {len(tensors)} there are")
        everything = [*(tensors[i] for i in operands), *self.whole]
        if not all(t is None or t.dtype.is_floating_point or t.dtype.is_complex for t in everything):
            raise self.fail(f"the linear set {names} has integer operands or results, where sums are not exact")
        splits = {i: _terms(tensors[i], seed=i) for i in operands}
        total: list[Any] = [None] * len(self.whole)
        for term in range(3):
            parts = [splits[i][term] if i in splits else t for i, t in enumerate(tensors)]
            made = self.run({}, fill(self.call.args, parts))
            for r, [(_, value)] in enumerate(made):
                total[r] = value if total[r] is None else total[r] + value
        for r, whole in enumerate(self.whole):
            if whole is not None:
                self._compare(f"result {r} of the linear set {names}", whole, total[r])


def _cuts(rule: Rule, ways: tuple[int, ...], pairs: bool) -> Iterator[Mapping[str, int]]:
    """Nothing; every factor in all ``ways``; every pair; all at once. Each cut once."""
    options = {f: _divisors(rule.sizes[f], ways) for f in rule.factors if rule.sizes[f] > 1}
    wanted: list[dict[str, int]] = [{}]
    wanted += [{f: n} for f, divisors in options.items() for n in divisors]
    if pairs:
        wanted += [{f: options[f][0], g: options[g][0]} for f, g in combinations(options, 2)]
        wanted.append({f: divisors[0] for f, divisors in options.items()})
    seen: set[frozenset[tuple[str, int]]] = set()
    for cut in wanted:
        whole = _with_majors(rule, cut)
        if whole is None or prod(whole.values()) > MOST_RANKS or frozenset(whole.items()) in seen:
            continue
        seen.add(frozenset(whole.items()))
        yield whole


def _divisors(size: int, ways: Iterable[int]) -> list[int]:
    fitting = [n for n in ways if size % n == 0]
    return fitting or [next(n for n in range(2, size + 1) if size % n == 0)]


def _with_majors(rule: Rule, cut: Mapping[str, int]) -> dict[str, int] | None:
    """``cut`` with all factors before a cut one cut whole; None if one of those must not be cut."""
    full, queue = dict(cut), list(cut)
    while queue:
        f = queue.pop()
        for dim in (dim for dims in (*rule.operands, *rule.results) for dim in dims if f in dim):
            for major in dim[: dim.index(f)]:
                if major in rule.replicate and rule.sizes[major] > 1:
                    return None
                if full.get(major, 1) != rule.sizes[major]:
                    full[major] = rule.sizes[major]
                    queue.append(major)
    return full


def _index(axes: Sequence[Axis], coordinate: Coordinate) -> int:
    return reduce(lambda place, axis: place * axis.size + coordinate[axis.name], axes, 0)


def _block(tensor: Tensor, sharding: Sharding, place: Coordinate | tuple[int, ...]) -> Tensor:
    """A rank's block of a whole tensor; ``place`` is the rank's coordinate or the block's number along each dim."""
    numbers = place if isinstance(place, tuple) else [_index(axes, place) for axes in sharding.dims]
    sizes = sharding.local_shape(tuple(tensor.shape))
    block = tensor[tuple(slice(n * size, (n + 1) * size) for n, size in zip(numbers, sizes, strict=True))]
    return block if isinstance(place, tuple) else block.contiguous()


def _terms(tensor: Tensor, seed: int) -> list[Tensor]:
    """Three random tensors of ``tensor``'s magnitude that add up to it; masks' huge and infinite elements don't count."""
    ordinary = tensor.abs()[tensor.abs() < HUGE]
    size = ordinary.max() if ordinary.numel() else 1
    first = size * sample(*tensor.shape, dtype=tensor.dtype, seed=seed + 17)
    second = size * sample(*tensor.shape, dtype=tensor.dtype, seed=seed + 71)
    return [first, second, tensor - first - second]


def _error(whole: Tensor, found: Tensor) -> float:
    """The largest difference over the largest finite magnitude (or 1); infinite where only one is finite."""
    if whole.numel() == 0:
        return 0.0
    wide = torch.complex128 if whole.dtype.is_complex else torch.float64
    a, b = whole.to(wide), found.to(wide)
    alike = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(alike, 0.0, (a - b).abs()).nan_to_num(nan=float("inf"))
    finite = a.abs()[a.isfinite()]
    return float(difference.max()) / max(1.0, float(finite.max()) if finite.numel() else 1.0)


def _tensor_leaves(args: tuple[Any, ...]) -> Iterator[Tensor]:
    return (leaf for leaf in leaves(args) if isinstance(leaf, Tensor))


def _tuples(args: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(_tuples(a) if isinstance(a, list | tuple) and not isinstance(a, TensorType) else a for a in args)


def _type(tensor: Tensor | None) -> Any:
    return None if tensor is None else TensorType(tuple(tensor.shape), tensor.dtype)


def _as_in_ir(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return DEVICE
    return _type(leaf) if isinstance(leaf, Tensor) else leaf
