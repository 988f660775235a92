"""One call under proof: its operands are split, every rank runs, and the assembled results are compared."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from shardc.diagnostics.dialects.rules import UnsoundRule
from shardc.dialects.aten.call import OpCall, fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.axis import merge
from shardc.dialects.dist.sharding import REDUCTIONS, Sharding
from shardc.dialects.rules.proving.cuts import over_own_axes
from shardc.dialects.rules.proving.execution import (
    Coordinate,
    EagerLocal,
    HandedOver,
    block,
    index_over,
    relative_error,
    results_list,
    run_operator,
    sample,
    tensor_leaves,
    type_of,
)
from shardc.dialects.rules.rule import Assignment, Dims, Rule, dims_under, factor_axes, representable

TOLERANCES = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4}
"""Tolerances relative to the largest magnitude of the whole result, or to 1 if that is larger."""
COARSE = 5e-2  # tolerance of 16-bit floats: three random terms, each rounded at a larger magnitude
HUGE = 1e12  # masks fill with larger numbers
COMBINE = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}


OfRanks = list[tuple[Coordinate, Any]]
"""Each rank's coordinate, with its value of one result."""


@dataclass(frozen=True)
class Trial:
    """A call under proof: its rule, its real arguments and its whole results."""

    call: OpCall
    rule: Rule
    args: tuple[Any, ...]
    whole: list[Any]
    values: bool
    tolerance: float | None

    def fail(self, problem: str, assignment: Assignment | None = None, example: str = "") -> UnsoundRule:
        cut = {f: prod(a.size for a in axes) for f, axes in (assignment or {}).items()}
        text = ", ".join(f"{f} into {n}" for f, n in cut.items()) or "nothing"
        if assignment is not None:
            shardings = self.rule.operand_shardings(over_own_axes(cut))
            text += f"\n  sample: {_shown(self.call.tensors, shardings)}"
        text += f"\n  found: {example}" if example else ""
        return UnsoundRule(op=self.call.target, rule=self.rule, problem=problem, cut=text)

    def check_form(self) -> None:
        """Check that factors are known, fit the shapes and occur once in a tensor, and that kinds and numbers
        exist.
        """
        rule, call = self.rule, self.call
        sides = ("operand", rule.operands, call.tensors), ("result", rule.results, call.results)
        for kind, dims, types in sides:
            if len(dims) != len(types):
                raise self.fail(f"it has {len(dims)} {kind}s, the call {len(types)}")
            for i, (tensor, type_) in enumerate(zip(dims, types, strict=True)):
                self._check_tensor(f"{kind} {i}", tensor, type_)
        known = {f for dims in (*rule.operands, *rule.results) for dim in dims for f in dim}
        for place in ("sizes", "reduce", "replicate", "traded"):
            for name in getattr(rule, place):
                if name not in known:
                    raise self.fail(f"{place} names the factor {name!r}, which no tensor has")
        for name, kind in rule.reduce.items():
            if kind not in REDUCTIONS:
                known_kinds = ", ".join(REDUCTIONS)
                raise self.fail(f"reduction {kind!r} of factor {name!r} is not one of {known_kinds}")

    def _check_tensor(self, what: str, dims: Dims, type_: TensorType | None) -> None:
        shape = () if type_ is None else type_.shape
        if len(dims) != len(shape):
            raise self.fail(f"{what} has {len(dims)} dims in it, {len(shape)} in the call")
        names = [f for dim in dims for f in dim]
        for f in names:
            if f not in self.rule.sizes:
                raise self.fail(f"factor {f!r} of {what} has no size")
            if names.count(f) > 1:
                raise self.fail(f"factor {f!r} appears twice in {what}")
        for d, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            made = prod(self.rule.sizes[f] for f in dim)
            if dim and made != size:
                names = " ".join(dim)
                raise self.fail(f"dim {d} of {what} has {size} elements, its factors {names} make {made}")

    def check_cut(self, assignment: Assignment) -> None:
        """Check that all ranks' results, assembled by the rule, are the whole results. Raises UnsoundRule."""
        tensors = (*self.rule.operands, *self.rule.results)
        if not all(representable(dims, assignment, self.rule.sizes) for dims in tensors):
            raise self.fail("no sharding of dims expresses this split", assignment)
        self.check_reading(assignment)
        for r, found in self._assembled(assignment, self.args):
            self.compare(f"result {r}", self.whole[r], found, assignment)

    def check_reading(self, assignment: Assignment) -> None:
        """Check that the cut can be read back from the tensors' normal shardings, as the partitioner does."""
        for dims in (*self.rule.operands, *self.rule.results):
            read = factor_axes(dims, Sharding(dims_under(dims, assignment)).normal(), self.rule.sizes)
            present = {f for dim in dims for f in dim}
            said = {f: merge(axes) for f, axes in assignment.items() if f in present}
            if {f: merge(axes) for f, axes in read.items()} != said:
                problem = f"is read as {read}, not as the cut that made it"
                raise self.fail(f"the sharding of a tensor [{dims}] {problem}", assignment)

    def run(self, assignment: Assignment, args: tuple[Any, ...]) -> list[OfRanks]:
        """Run the call on every rank."""
        axes = [axis for cut in assignment.values() for axis in cut]
        operands = self.rule.operand_shardings(assignment)
        pairs = zip(self.call.results, self.rule.result_shardings(assignment), strict=True)
        local_types = tuple(type_ and type_.with_shape(s.local_shape(type_.shape)) for type_, s in pairs)
        made: list[OfRanks] = [[] for _ in self.call.results]
        handed_over: dict[tuple[tuple[int, ...], int], Tensor] = {}

        def local_at(coordinate: Coordinate, until: int = -1) -> EagerLocal:
            tensors = [block(t, s, coordinate) for t, s in zip(tensor_leaves(args), operands, strict=True)]
            whole = (self.call, fill(self.call.args, tensors), local_types, self.rule.sizes, assignment)
            return EagerLocal(*whole, coordinate, peer, until)

        def peer(coordinate: Coordinate, number: int) -> Tensor:
            key = (tuple(coordinate[axis] for axis in axes), number)
            if key not in handed_over:
                handed_over[key] = self._handed_over(local_at(coordinate, number))
            return handed_over[key]

        for place in itertools.product(*(range(axis.size) for axis in axes)):
            coordinate = dict(zip(axes, place, strict=True))
            local = local_at(coordinate)
            values = self._run_local(local)
            self._check_types(values, local_types, assignment)
            for r, value in enumerate(values):
                made[r].append((coordinate, value))
        return made

    def _handed_over(self, local: EagerLocal) -> Tensor:
        """Run a rank's call up to its exchange ``until``, and return the value that it sends there."""
        try:
            self.made_by(local)
        except HandedOver as found:
            return found.value
        raise self.fail("a rank waits for an exchange that another does not make", local.assignment)

    def made_by(self, local: EagerLocal) -> list[Any]:
        """Return the results of one rank's call."""
        if self.rule.lower is not None:
            return list(self.rule.lower(local))
        return results_list(run_operator(self.call.target, local.args))

    def _run_local(self, local: EagerLocal) -> list[Any]:
        try:
            return self.made_by(local)
        except Exception as error:  # an operator of a user may raise anything
            places = (f"{f}={index_over(a, local.coordinate)}" for f, a in local.assignment.items())
            at = ", ".join(places) or "the only rank"
            raise self.fail(f"the local call failed at {at}: {str(error)[:400]}", local.assignment) from error

    def _check_types(
        self, values: Sequence[Any], types: Sequence[TensorType | None], assignment: Assignment
    ) -> None:
        if len(values) != len(types):
            raise self.fail(f"lower gives {len(values)} results, the call has {len(types)}", assignment)
        for r, (value, type_) in enumerate(zip(values, types, strict=True)):
            if type_ is not None and type_of(value) != type_:
                raise self.fail(f"local result {r} is {type_of(value)}, the rule says {type_}", assignment)

    def _assembled(self, assignment: Assignment, args: tuple[Any, ...]) -> Iterator[tuple[int, Tensor]]:
        """Yield the number and the value of each result, assembled from all ranks' results on ``args``."""
        shardings = self.rule.result_shardings(assignment)
        for r, made in enumerate(self.run(assignment, args)):
            if self.whole[r] is not None:
                yield r, self._assemble(r, shardings[r], made, assignment)

    def _assemble(self, r: int, sharding: Sharding, made: OfRanks, assignment: Assignment) -> Tensor:
        """Assemble one tensor from all ranks' blocks: check replicas, combine terms, place blocks."""
        kinds = {reduction for reduction, _ in sharding.partial}
        if len(kinds) > 1:
            raise self.fail(f"result {r} is partial with two reductions", assignment)
        axes_cut = itertools.chain.from_iterable(assignment.values())
        summed = [axis for axis in axes_cut if any(axis.overlaps(p) for _, p in sharding.partial)]
        blocks: dict[tuple[int, ...], dict[tuple[int, ...], Tensor]] = {}
        for coordinate, value in made:
            place = tuple(index_over(axes, coordinate) for axes in sharding.dims)
            term = tuple(coordinate[axis] for axis in summed)
            terms = blocks.setdefault(place, {})
            known = terms.setdefault(term, value)
            if self.values and not torch.equal(known.nan_to_num(), value.nan_to_num()):
                said = {a.name for a in sharding.used}
                lacking = ", ".join(f for f, axes in assignment.items() if not {a.name for a in axes} & said)
                raise self.fail(
                    f"result {r} lacks {lacking}, which is not reduced, but ranks have different values",
                    assignment,
                    _first_difference(f"result {r}", known, value, ("one rank", "another")),
                )
        out = torch.empty_like(self.whole[r])
        for place, terms in blocks.items():
            first, *rest = terms.values()
            for term in rest:
                first = COMBINE[next(iter(kinds))](first, term)
            block(out, sharding, place).copy_(first)
        return out

    def compare(self, what: str, whole: Tensor, found: Tensor, assignment: Assignment) -> None:
        if not self.values:
            return
        error = relative_error(whole, found)
        limit = self._tolerance(whole.dtype)
        if not error <= limit:
            example = _first_difference(what, whole, found, ("expected", "found"), limit)
            problem = f"{what} is off by {error:.3g} of its largest magnitude, more than {limit:.3g}"
            raise self.fail(problem, assignment, example)

    def _tolerance(self, dtype: torch.dtype) -> float:
        """Return the tolerance of the coarsest floating dtype of result and operands; 0 for integers."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return 0.0
        if self.tolerance is not None:
            return self.tolerance
        dtypes = {dtype, *(t.dtype for t in self.call.tensors)}
        return max(TOLERANCES.get(d, COARSE) for d in dtypes if d.is_floating_point or d.is_complex)

    def check_linear(self, operands: frozenset[int], assignment: Assignment) -> None:
        """Check a linear set: with each operand split into three random terms, results must add up to the
        whole.
        """
        names = str(set(sorted(operands)))
        tensors = list(tensor_leaves(self.args))
        if not all(0 <= i < len(tensors) for i in operands) or not operands:
            raise self.fail(f"the linear set {names} names no operands of the {len(tensors)} there are")
        everything = [*(tensors[i] for i in operands), *self.whole]
        if not all(t is None or t.dtype.is_floating_point or t.dtype.is_complex for t in everything):
            problem = "has integer operands or results, where sums are not exact"
            raise self.fail(f"the linear set {names} {problem}")
        splits = {i: _terms(tensors[i], seed=i) for i in operands}
        parts = ([splits[i][term] if i in splits else t for i, t in enumerate(tensors)] for term in range(3))
        first, *others = (dict(self._assembled(assignment, fill(self.call.args, part))) for part in parts)
        for r, term in first.items():
            total = term + others[0][r] + others[1][r]
            self.compare(f"result {r} of the linear set {names}", self.whole[r], total, assignment)


def _terms(tensor: Tensor, seed: int) -> list[Tensor]:
    """Return three random tensors that add up to ``tensor``, of its magnitude without huge elements of
    masks.
    """
    ordinary = tensor.abs()[tensor.abs() < HUGE]
    size = ordinary.max() if ordinary.numel() else 1
    first = size * sample(*tensor.shape, dtype=tensor.dtype, seed=seed + 17)
    second = size * sample(*tensor.shape, dtype=tensor.dtype, seed=seed + 71)
    return [first, second, tensor - first - second]


def _shown(types: Sequence[TensorType], shardings: Sequence[Sharding]) -> str:
    """Return shapes and shardings of operands as text for a counterexample: ``[4,6] cut [{}, {d}]``."""
    shown = []
    for type_, sharding in zip(types, shardings, strict=True):
        dims = ", ".join("{" + ",".join(a.name for a in axes) + "}" for axes in sharding.dims)
        cut = f"cut [{dims}]" if any(sharding.dims) else "whole"
        shown.append(f"[{','.join(map(str, type_.shape))}] {str(type_.dtype).removeprefix('torch.')} {cut}")
    return "; ".join(shown) or "no tensors"


def _first_difference(what: str, one: Tensor, two: Tensor, names: tuple[str, str], limit: float = 0.0) -> str:
    """Describe the first element, in row-major order, that differs by more than ``limit`` of the
    magnitude.
    """
    wide = torch.complex128 if one.dtype.is_complex else torch.float64
    a, b = one.to(wide), two.to(wide)
    finite = a.abs()[a.isfinite()]
    bound = limit * max(1.0, float(finite.max()) if finite.numel() else 1.0)
    differ = ~(((a - b).abs() <= bound) | (a == b) | (a.isnan() & b.isnan()))
    at = tuple(int(i) for i in differ.nonzero()[0])
    return f"{what} at {list(at)}: {names[0]} {one[at].item():.9g}, {names[1]} {two[at].item():.9g}"
