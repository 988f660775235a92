"""Which shardings an operator would bear that its rule does not offer: found by execution on two ranks.

Every operand is in turn whole, cut along a dim, or terms of a sum, a maximum or a minimum, in all
combinations. The operator runs on both ranks' parts, and each result is looked at: is it whole, cut along a
dim, terms of a sum, a maximum, a minimum? What comes out is valid, and is left out only if the rule offers
it, or offers what it follows from without communication: a whole tensor may be cut, or be taken as one term
of two.

Only plain local calls are tried, with the result's shape put in where an argument states it; what takes other
local arguments is for the rule's author to see. Not split into terms are integer operands, and operands whose
values the call does not read (``zeros_like``; the input of a pooling's gradient, which gives its shape).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import Any

import torch
from torch import Tensor

from shardc.dialects.aten.call import OpCall, fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.sharding import Sharding
from shardc.dialects.rules.proving.execution import (
    call_of,
    relative_error,
    run_operator,
    sample,
    tensor_leaves,
    type_of,
)
from shardc.dialects.rules.rule import Rule, representable

Placement = str
"""How a tensor lies on the two ranks: ``whole``, ``dim 0``, ``sum``, ``max``, ``min``; ``none`` if it is not
made.
"""
WHOLE = "whole"
TERMS = ("sum", "max", "min")
Way = Callable[[Tensor, int], Tensor]
"""How operand number ``i`` of a sample is varied, so that nothing is valid by chance."""
MOST_COMBINATIONS = 3000
"""Above it only those are tried that differ from an offered one in at most two operands."""
COMBINE = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}

UNCHECKED = re.compile(r"native_group_norm")
"""Operators that trust the sizes they are told: run on other tensors they would write out of bounds."""
SORTED = re.compile(r"searchsorted|bucketize")
"""Operators that take sorted tables, which may only be scaled."""
HALF_CHECKED = re.compile(r"native_|pool|upsample|shardc\.")
"""Operators that trust operands to fit one another: only cuts that give each factor one size are run."""


@dataclass(frozen=True, order=True)
class Layout:
    """How all operands and results of a call lie: ``dim 0, whole -> sum``."""

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.operands)} -> {', '.join(self.results)}"

    def gives(self, other: Layout) -> bool:
        """Whether ``other`` follows without communication: a whole tensor is cut, or taken as a term."""
        operands = all(o in (WHOLE, s) for s, o in zip(self.operands, other.operands, strict=True))
        return operands and all(s in (WHOLE, o) for s, o in zip(self.results, other.results, strict=True))


def not_offered(target: str, args: Sequence[Any], rule: Rule) -> list[Layout]:
    """The strongest layouts of the call that execution shows valid and that do not follow from the rule."""
    call, full, whole = call_of(target, args)
    if UNCHECKED.search(target) or not _is_fine([*tensor_leaves(full), *whole]):
        return []
    offered = list(_offered(rule, call))
    search = _Search(call, rule, full, whole)
    found: list[Layout] = []
    for operands in search.candidates(offered):
        if any(o.gives(Layout(operands, (WHOLE,) * len(whole))) for o in offered):
            continue
        results = search.results(operands)
        if results is not None and not any(o.gives(Layout(operands, results)) for o in offered):
            found.append(Layout(operands, results))
    return sorted(f for f in found if not any(g.gives(f) for g in found if g != f))


def _is_fine(tensors: Sequence[Tensor | None]) -> bool:
    """Whether nothing hides a difference: 16-bit numbers, infinities, empty tensors.
    The same calls have other samples.
    """
    made = [t for t in tensors if t is not None]
    return all(
        t.dtype not in (torch.float16, torch.bfloat16) and t.numel() and bool(t.isfinite().all())
        for t in made
    )


def _offered(rule: Rule, call: OpCall) -> Iterator[Layout]:
    """What the rule offers over one axis of two ways."""
    absent = [t is None for t in call.results]
    yield Layout((WHOLE,) * len(rule.operands), tuple("none" if a else WHOLE for a in absent))
    for factor in rule.factors:
        cut = {factor: (Axis("x", 1, 2),)}
        if rule.sizes[factor] % 2 or not all(
            representable(d, cut, rule.sizes) for d in (*rule.operands, *rule.results)
        ):
            continue
        operands = tuple(map(_placement, rule.operand_shardings(cut)))
        results = map(_placement, rule.result_shardings(cut))
        yield Layout(operands, tuple("none" if a else r for r, a in zip(results, absent, strict=True)))
    for linear in rule.linear:
        operands = tuple("sum" if i in linear else WHOLE for i in range(len(rule.operands)))
        yield Layout(operands, tuple("none" if a else "sum" for a in absent))


def _placement(sharding: Sharding) -> Placement:
    if sharding.partial:
        return sharding.partial[0][0]
    return next((f"dim {d}" for d, axes in enumerate(sharding.dims) if axes), WHOLE)


@dataclass(frozen=True)
class _Search:
    call: OpCall
    rule: Rule
    args: tuple[Any, ...]
    whole: list[Any]

    def candidates(self, offered: Sequence[Layout]) -> Iterator[tuple[Placement, ...]]:
        """The operands' placements to try."""
        choices = [_choices(t, self._is_read(i)) for i, t in enumerate(self.call.tensors)]
        if prod(map(len, choices)) <= MOST_COMBINATIONS:
            every: Iterable[tuple[Placement, ...]] = product(*choices)
        else:
            every = dict.fromkeys(near for o in offered for near in _near(o.operands, choices))
        return (c for c in every if _is_plain(c) and self._is_safe(c))

    def _is_read(self, number: int) -> bool:
        """Whether any result depends on the values of an operand."""
        tensors = list(tensor_leaves(self.args))
        if not tensors[number].dtype.is_floating_point:
            return True
        for way in self._ways():
            changed = [way(t, i) if i == number else t for i, t in enumerate(tensors)]
            made = _results(run_operator(self.call.target, fill(self.call.args, changed)))
            if any(w is not None and not _same(w, m) for w, m in zip(self.whole, made, strict=True)):
                return True
        return False

    def _ways(self) -> Sequence[Way]:
        """How samples are varied."""
        if SORTED.search(self.call.target):
            return (_as_it_is, _scaled)
        return (
            _as_it_is,
            _scaled,
            _turned,
            _shuffled,
            *((_sparse, _dense, _broken) if self._is_test else ()),
        )

    @property
    def _is_test(self) -> bool:
        """Whether results are truth values, which seldom change."""
        return any(w is not None and w.dtype == torch.bool for w in self.whole)

    def _is_safe(self, operands: tuple[Placement, ...]) -> bool:
        if not HALF_CHECKED.search(self.call.target):
            return True
        cuts: dict[str, set[bool]] = {}
        for dims, placement in zip(self.rule.operands, operands, strict=True):
            for d, dim in enumerate(dims):
                for f in dim:
                    cuts.setdefault(f, set()).add(placement == f"dim {d}")
        never = self.rule.replicate | self.rule.traded
        return all(len(c) == 1 and (c == {False} or f not in never) for f, c in cuts.items())

    def results(self, operands: tuple[Placement, ...]) -> tuple[Placement, ...] | None:
        """How the results lie, on several samples alike; None if some result is none of what can be said."""
        for shape in self._local_shapes():
            alike = None
            for seed, way in enumerate(self._ways()):
                found = self._run(operands, shape, seed, way)
                if found is None or (
                    alike is not None and not all(a & b for a, b in zip(alike, found, strict=True))
                ):
                    alike = None
                    break
                alike = found if alike is None else [a & b for a, b in zip(alike, found, strict=True)]
            if alike is not None:
                return tuple(_strongest(a) for a in alike)
        return None

    def _local_shapes(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]] | None]:
        """What is put in place of arguments that state the result's shape:
        nothing, then the shape with a dim halved.
        """
        yield None
        shape = next((tuple(w.shape) for w in self.whole if w is not None), ())
        if shape and shape in self.call.args:
            for d, size in enumerate(shape):
                if size % 2 == 0 and size:
                    yield shape, (*shape[:d], size // 2, *shape[d + 1 :])

    def _run(
        self, operands: tuple[Placement, ...], shape: Any, seed: int, way: Way
    ) -> list[set[Placement]] | None:
        tensors = [way(t, i) for i, t in enumerate(tensor_leaves(self.args))]
        parts = [_parts(t, p, 10 * seed + i) for i, (t, p) in enumerate(zip(tensors, operands, strict=True))]
        args = (
            self.call.args
            if shape is None
            else tuple(shape[1] if a == shape[0] else a for a in self.call.args)
        )
        try:
            whole = (
                self.whole
                if not seed
                else _results(run_operator(self.call.target, fill(self.call.args, tensors)))
            )
            made = [
                _results(run_operator(self.call.target, fill(args, [p[r] for p in parts]))) for r in (0, 1)
            ]
        except Exception:  # a layout that the operator does not take; any operator may say so in its own way
            return None
        found = (
            [_lies(w, (a, b)) for w, a, b in zip(whole, *made, strict=True)]
            if len(made[0]) == len(whole)
            else []
        )
        return found if found and all(found) else None


def _choices(type_: TensorType, is_read: bool) -> list[Placement]:
    dims = [f"dim {d}" for d, size in enumerate(type_.shape) if size and size % 2 == 0]
    return [WHOLE, *dims, *(TERMS if type_.dtype.is_floating_point and is_read else ())]


def _is_plain(operands: tuple[Placement, ...]) -> bool:
    """Maxima and minima are not tried together with anything but whole operands: no rule takes any yet."""
    kinds = set(operands) - {WHOLE}
    return len(kinds) == 1 or not kinds & {"max", "min"}


def _near(start: tuple[Placement, ...], choices: list[list[Placement]]) -> Iterator[tuple[Placement, ...]]:
    """``start`` with up to two operands placed otherwise."""
    yield start
    for count in (1, 2):
        for places in combinations(range(len(start)), count):
            for chosen in product(*(choices[p] for p in places)):
                changed = dict(zip(places, chosen, strict=True))
                yield tuple(changed.get(i, p) for i, p in enumerate(start))


def _as_it_is(tensor: Tensor, number: int) -> Tensor:
    return tensor


def _scaled(tensor: Tensor, number: int) -> Tensor:
    """Floats by one factor a little above 1, which keeps order."""
    return tensor * (1.01 + 0.003 * number) if tensor.dtype.is_floating_point else tensor


def _turned(tensor: Tensor, number: int) -> Tensor:
    """Floats of the other sign, in reverse order and a few percent off."""
    if not tensor.dtype.is_floating_point:
        return tensor
    noise = sample(*tensor.shape, dtype=tensor.dtype, seed=100 + number).clamp(-1, 1)
    return -tensor.flip(tuple(range(tensor.dim()))) * (1 + 0.02 * noise)


def _shuffled(tensor: Tensor, number: int) -> Tensor:
    """Floats in another order."""
    if not tensor.dtype.is_floating_point:
        return tensor
    order = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(number))
    return tensor.flatten()[order].view(tensor.shape)


def _sparse(tensor: Tensor, number: int) -> Tensor:
    """Zero, or false, but for one element."""
    return _one_apart(tensor, torch.zeros_like(tensor), torch.ones_like(tensor), number)


def _dense(tensor: Tensor, number: int) -> Tensor:
    """One, or true, but for one element."""
    return _one_apart(tensor, torch.ones_like(tensor), torch.zeros_like(tensor), number)


def _one_apart(tensor: Tensor, most: Tensor, other: Tensor, number: int) -> Tensor:
    if not (tensor.dtype.is_floating_point or tensor.dtype == torch.bool):
        return tensor
    place = (2 * tensor.numel() // 3 + number) % tensor.numel()
    return torch.where(torch.arange(tensor.numel()).view(tensor.shape) == place, other, most)


def _broken(tensor: Tensor, number: int) -> Tensor:
    """Some elements infinite, some no numbers."""
    if not tensor.dtype.is_floating_point:
        return tensor
    places = sample(*tensor.shape, below=6, dtype=torch.int64, seed=400 + number)
    values = torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=tensor.dtype)
    return torch.where(places < 3, values[places.clamp(max=2)], tensor)


def _parts(tensor: Tensor, placement: Placement, seed: int) -> tuple[Tensor, Tensor]:
    """What the two ranks have of a tensor."""
    if placement == WHOLE:
        return tensor, tensor
    if placement.startswith("dim"):
        one, other = tensor.chunk(2, int(placement[4:]))
        return one.contiguous(), other.contiguous()
    noise = sample(*tensor.shape, dtype=tensor.dtype, seed=seed + 31)
    if placement == "sum":
        return noise, tensor - noise
    farther = tensor - noise.abs() - 0.1 if placement == "max" else tensor + noise.abs() + 0.1
    mine = sample(*tensor.shape, dtype=torch.bool, seed=seed + 57)
    return torch.where(mine, tensor, farther), torch.where(mine, farther, tensor)


def _results(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple | list) else [made]


def _lies(whole: Tensor | None, parts: tuple[Any, Any]) -> set[Placement]:
    """Everything that can be said of how two ranks' results make up the whole one."""
    if whole is None:
        return {"none"}
    one, other = parts
    if type_of(one) != type_of(other) or one.dtype != whole.dtype:
        return set()
    if one.shape != whole.shape:
        cut = [
            d
            for d, n in enumerate(whole.shape)
            if one.shape == (*whole.shape[:d], n // 2, *whole.shape[d + 1 :])
        ]
        return {
            f"dim {d}" for d in cut if whole.shape[d] % 2 == 0 and _same(whole, torch.cat([one, other], d))
        }
    found = {WHOLE} if _same(whole, one) and _same(whole, other) else set()
    terms = [
        t
        for t in TERMS
        if not (whole.dtype.is_complex and t != "sum") and not (whole.dtype == torch.bool and t == "sum")
    ]
    return found | {t for t in terms if _same(whole, COMBINE[t](one, other))}


def _same(whole: Tensor, found: Tensor) -> bool:
    if whole.shape != found.shape:
        return False
    exact = not (whole.dtype.is_floating_point or whole.dtype.is_complex)
    limit = 0.0 if exact else 1e-9 if whole.dtype in (torch.float64, torch.complex128) else 1e-5
    return relative_error(whole, found) <= limit


def _strongest(placements: set[Placement]) -> Placement:
    return WHOLE if WHOLE in placements else sorted(placements)[0]
