"""Views and other moves of elements: reshapes, permutations, slices, concatenations, padding.

A reshape's rule is derived from its shapes: dims of both sides are cut down to common factors, the most major first.
Dims of which only a part is taken, or which are joined, stay whole; the others are plain. All are linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import Factors, linear_sets, pointwise
from shardc.dialects.rules.rule import Dim, Local, Rule, rule_for

Dims = tuple[Dim, ...]


def reshape_dims(factors: Factors, source: tuple[int, ...], target: tuple[int, ...]) -> tuple[Dims, Dims]:
    """The factors of the dims on both sides of a reshape.

    Walks both shapes from the major end, splitting off what the two heads have in common. Where the heads have no
    common divisor ([3,2] to [2,3]), all up to the next common boundary stays whole.
    """
    if 0 in source:
        return tuple(factors.whole(n) for n in source), tuple(factors.whole(n) for n in target)
    left, right = _Side(source), _Side(target)
    while left.advance() and right.advance():
        common = gcd(left.rest, right.rest)
        if common > 1 and (common in (left.rest, right.rest) or left.aligned == right.aligned):
            factor = factors.new(common)
            left.take(factor, common)
            right.take(factor, common)
        else:
            _take_whole(factors, left, right)
    return left.dims, right.dims


class _Side:
    """One shape of a reshape: the factors given to its dims so far, and what is left of the dim at its head."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._found: list[Dim] = [() for _ in shape]
        self._at = -1
        self.rest = 1
        self.aligned = 1
        """The product of what has been taken."""

    def advance(self) -> bool:
        """Go to the next dim with anything left; False at the end."""
        while self.rest == 1 and self._at + 1 < len(self._shape):
            self._at += 1
            self.rest = self._shape[self._at]
        return self.rest > 1

    def take(self, factor: Dim, size: int) -> None:
        self._found[self._at] += factor
        self.rest //= size
        self.aligned *= size

    @property
    def dims(self) -> Dims:
        return tuple(self._found)


def _take_whole(factors: Factors, left: _Side, right: _Side) -> None:
    """Take the heads' rests whole, each side its own, until both have taken the same number of elements."""
    left.take(factors.whole(left.rest), left.rest)
    right.take(factors.whole(right.rest), right.rest)
    while left.aligned != right.aligned:
        behind = left if left.aligned < right.aligned else right
        behind.advance()
        behind.take(factors.whole(behind.rest), behind.rest)


_RESHAPES = ("aten.view", "aten._unsafe_view", "aten.reshape")


@rule_for(*_RESHAPES, "aten._reshape_alias", "aten.flatten.using_ints", "aten.unflatten.int")
def reshape(call: OpCall) -> Rule:
    factors = Factors()
    source, target = reshape_dims(factors, call["self"].shape, call.results[0].shape)
    return factors.rule((source,), (target,), linear_sets(call, ((0,),)), _reshape_local)


def _reshape_local(local: Local) -> Sequence[Any]:
    target = local.spec.target if local.spec.target in _RESHAPES else "aten.reshape"
    return [local.emit(target, local.args[0], local.results[0].shape)]


@rule_for("aten.expand", "aten.expand_as")
def expand(call: OpCall) -> Rule:
    return pointwise(call, ((0,),), _expand_local if call.target == "aten.expand" else None)


def _expand_local(local: Local) -> Sequence[Any]:
    return [local.emit("aten.expand", local.args[0], local.results[0].shape, *local.args[2:])]


@rule_for("aten.repeat")
def repeat(call: OpCall) -> Rule:
    """Copies are the major part of a dim and come from the result alone: ([b])->([(a b)])."""
    factors = Factors()
    shape, repeats = call["self"].shape, call["repeats"]
    new = len(repeats) - len(shape)
    copies = [factors.new(n) for n in repeats]
    own = factors.shape(shape)
    result = (*copies[:new], *(c + d for c, d in zip(copies[new:], own, strict=True)))
    return factors.rule((own,), (result,), linear_sets(call, ((0,),)), _repeat_local)


def _repeat_local(local: Local) -> Sequence[Any]:
    new = len(local.spec["repeats"]) - len(local.spec["self"].shape)
    own = [local.size(dim[0]) if dim else 1 for dim in _own_dims(local)]
    shape = local.results[0].shape
    copies = [*shape[:new], *(n // k for n, k in zip(shape[new:], own, strict=True))]
    return [local.emit("aten.repeat", local.args[0], copies)]


@rule_for("aten.permute", "aten.transpose.int", "aten.t", "aten.numpy_T", "aten.movedim.int", "aten.movedim.intlist")
def permute(call: OpCall) -> Rule:
    factors = Factors()
    dims = factors.shape(call["self"].shape)
    result = tuple(dims[d] for d in _order(call))
    return factors.rule((dims,), (result,), linear_sets(call, ((0,),)))


def _order(call: OpCall) -> list[int]:
    """For each dim of a permutation's result, the operand's dim."""
    rank = len(call["self"].shape)
    order = list(range(rank))
    if call.target == "aten.permute":
        return [d % rank for d in call["dims"]]
    if call.target == "aten.transpose.int":
        a, b = (call["dim0"] % rank, call["dim1"] % rank) if rank else (0, 0)
        order[a:a + 1], order[b:b + 1] = order[b:b + 1], order[a:a + 1]
        return order
    if call.target.startswith("aten.movedim"):
        return _moved(order, call["source"], call["destination"])
    return order[::-1]


def _moved(order: list[int], source: int | tuple[int, ...], target: int | tuple[int, ...]) -> list[int]:
    rank = len(order)
    sources = [d % rank for d in (source if isinstance(source, tuple) else (source,))]
    targets = [d % rank for d in (target if isinstance(target, tuple) else (target,))]
    rest = iter(d for d in order if d not in sources)
    return [sources[targets.index(d)] if d in targets else next(rest) for d in order]
