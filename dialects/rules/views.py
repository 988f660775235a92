"""Rules of views and other moves of elements: reshapes, permutations, concatenations.

A reshape's rule is derived from its shapes: dims of both sides are factored into common factors, the most
major first. Dims along which tensors are concatenated stay whole; all others may be split. All rules are
linear.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import gcd, prod
from typing import TypeVar

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import FIRST, Factors, Sets, aligned, local_sizes, pointwise, results_of
from shardc.dialects.rules.rule import Dim, Dims, ImpossibleCall, Local, Lower, Rule, rule_for
from shardc.dialects.rules.spatial.neighbours import rolled

_T = TypeVar("_T")


def reshape_dims(factors: Factors, source: tuple[int, ...], target: tuple[int, ...]) -> tuple[Dims, Dims]:
    """Return the factors of the dims on both sides of a reshape.

    Walks both shapes from the major end and splits off the greatest common divisor of the current sizes. If
    they have none ([3,2] to [2,3]), all dims up to the next common boundary stay whole.

    Raises:
        ImpossibleCall: the shapes have different numbers of elements.
    """
    if prod(source) != prod(target):
        raise ImpossibleCall(f"{list(source)} has not as many elements as {list(target)}")
    if 0 in source:
        return tuple(factors.whole(n) for n in source), tuple(factors.whole(n) for n in target)
    left, right = _Side(source), _Side(target)
    while left.advance() and right.advance():
        common = gcd(left.rest, right.rest)
        if common > 1:
            factor = factors.new(common)
            left.take(factor, common)
            right.take(factor, common)
        else:
            _take_whole(factors, left, right)
    return left.dims, right.dims


def _moved(call: OpCall, factors: Factors, source: Dims, target: Dims, lower: Lower | None = None) -> Rule:
    """Return the rule of a call that moves the elements of one tensor."""
    return factors.rule(call, (source,), (target,), FIRST, lower)


def _in_order(inverse: bool, first: _T, second: _T) -> tuple[_T, _T]:
    """Return both values, swapped for an inverse."""
    return (second, first) if inverse else (first, second)


def _whole_at(factors: Factors, shape: tuple[int, ...], dims: set[int]) -> Dims:
    """Return new dims for ``shape``; those in ``dims`` stay whole."""
    return tuple(factors.whole(n) if d in dims else factors.new(n) for d, n in enumerate(shape))


class _Side:
    """One side of a reshape: the factors of its dims so far, and the ``rest`` of the current dim's size."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._found: list[Dim] = [() for _ in shape]
        self._at = -1
        self.rest = 1
        self.aligned = 1
        """The product of the sizes taken so far."""

    def advance(self) -> bool:
        """Go to the next dim with a size other than 1; return False at the end."""
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
    """Take the rests of current dims as whole factors until both sides have taken equal numbers of
    elements.
    """
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
    source, target = reshape_dims(factors, call["self"].shape, call.result.shape)
    return _moved(call, factors, source, target, _reshape_local)


def _reshape_local(local: Local) -> Sequence[object]:
    target = local.spec.target if local.spec.target in _RESHAPES else "aten.reshape"
    return [local.emit(target, local.args[0], results_of(local)[0].shape)]


@rule_for("aten.expand")
def expand(call: OpCall) -> Rule:
    return pointwise(call, FIRST, local_sizes)


@rule_for("aten.repeat")
def repeat(call: OpCall) -> Rule:
    """Rule of ``repeat``; copies are the major factors of result dims: ([c])->([a,(b c)])."""
    factors = Factors()
    shape, repeats = call["self"].shape, call["repeats"]
    copies, own = factors.shape(repeats), factors.shape(shape)
    new = len(repeats) - len(shape)
    result = (*copies[:new], *(c + d for c, d in zip(copies[new:], own, strict=True)))
    return _moved(call, factors, own, result, partial(_repeat_local, copies))


def _repeat_local(copies: Dims, local: Local) -> Sequence[object]:
    return [local.emit("aten.repeat", local.args[0], tuple(local.size(c[0]) if c else 1 for c in copies))]


@rule_for("aten.repeat_interleave.self_int")
def repeat_interleave(call: OpCall) -> Rule | None:
    """Rule of ``repeat_interleave``; copies are minor factors: ([a])->([(a b)]). None if it flattens."""
    if call["dim"] is None:
        return None
    factors = Factors()
    dims, copies = factors.shape(call["self"].shape), factors.new(call["repeats"])
    dim = call["dim"] % len(dims)
    result = (*dims[:dim], dims[dim] + copies, *dims[dim + 1 :])
    return _moved(call, factors, dims, result, partial(_repeat_interleave_local, copies))


def _repeat_interleave_local(copies: Dim, local: Local) -> Sequence[object]:
    repeats = local.size(copies[0]) if copies else 1
    return [local.emit(local.spec.target, local.args[0], repeats, local.spec["dim"])]


@rule_for("aten.permute", "aten.transpose.int", "aten.t")
def permute(call: OpCall) -> Rule:
    factors = Factors()
    dims = factors.shape(call["self"].shape)
    return _moved(call, factors, dims, tuple(dims[d] for d in _order(call)))


def _order(call: OpCall) -> list[int]:
    """Return, for each dim of a permutation's result, the operand's dim."""
    if call.target == "aten.permute":
        return list(call["dims"])
    order = list(range(len(call["self"].shape)))
    if call.target == "aten.t":
        return order[::-1]
    if order:
        a, b = call["dim0"], call["dim1"]
        order[a], order[b] = order[b], order[a]
    return order


@rule_for("aten.unsqueeze")
def unsqueeze(call: OpCall) -> Rule:
    factors = Factors()
    dims = factors.shape(call["self"].shape)
    at = call["dim"] % (len(dims) + 1)
    return _moved(call, factors, dims, (*dims[:at], (), *dims[at:]))


@rule_for("aten.squeeze", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(call: OpCall) -> Rule:
    factors = Factors()
    dims = factors.shape(call["self"].shape)
    gone = _squeezed(call)
    result = tuple(dim for d, dim in enumerate(dims) if d not in gone)
    return _moved(call, factors, dims, result, _squeeze_local)


def _squeezed(call: OpCall) -> tuple[int, ...]:
    """Return the removed dims.

    The local call names them, since another dim may have one element on a rank and more in the whole.
    """
    shape = call["self"].shape
    named = range(len(shape)) if call.target == "aten.squeeze" else call["dim"]
    named = named if isinstance(named, tuple | range) else (named,)
    return tuple(sorted({d % len(shape) for d in named if shape[d] == 1})) if shape else ()


def _squeeze_local(local: Local) -> Sequence[object]:
    return [local.emit("aten.squeeze.dims", local.args[0], _squeezed(local.spec))]


@rule_for("aten.split.Tensor", "aten.split_with_sizes")
@rule_for("aten.unsafe_split.Tensor", "aten.unsafe_split_with_sizes")
def split(call: OpCall) -> Rule:
    return aligned(call, whole=(call["dim"],), sets=FIRST)


@rule_for("aten.cat")
def cat(call: OpCall) -> Rule:
    return aligned(call, sets=(tuple(range(len(call.tensors))),))


@rule_for("aten.flip")
def flip(call: OpCall) -> Rule:
    """Rule of ``flip``: a rank exchanges its block with the rank at the same distance from the other end."""
    return _traded(aligned(call, sets=FIRST), call["dims"], _flip_local)


def _flip_local(dims: Dims, local: Local) -> Sequence[object]:
    made = local.emit("aten.flip", local.args[0], local.spec["dims"])
    for d in local.spec["dims"]:
        for f in _cut(local, dims[d]):
            made = local.exchange(made, f, tuple(reversed(range(local.ways(f)))))
    return [made]


@rule_for("aten.roll")
def roll(call: OpCall) -> Rule:
    """Rule of ``roll``: ranks send the elements that leave their blocks. Without ``dims`` all dims stay
    whole.
    """
    if not call["dims"]:
        return aligned(call, whole=range(len(call["self"].shape)), sets=FIRST)
    return _traded(aligned(call, sets=FIRST), call["dims"], _roll_local)


def _roll_local(dims: Dims, local: Local) -> Sequence[object]:
    """Roll on a rank: the operator rolls dims that are whole, or that shift by whole turns."""
    shape, shifts = local.spec["self"].shape, zip(local.spec["shifts"], local.spec["dims"], strict=True)
    moves = [(by, d) for by, d in shifts if not _cut(local, dims[d]) or by % shape[d] == 0]
    made = local.emit("aten.roll", local.args[0], *zip(*moves, strict=True)) if moves else local.args[0]
    for by, d in zip(local.spec["shifts"], local.spec["dims"], strict=True):
        if (by, d) not in moves:
            made = rolled(local, made, d % len(shape), *_cut(local, dims[d]), by % shape[d])
    return [made]


def _traded(rule: Rule, along: Sequence[int], lower: Callable[[Dims, Local], Sequence[object]]) -> Rule:
    """Return ``rule``, of one operand, with exchanges between ranks along some dims."""
    (dims,) = rule.operands
    traded = frozenset(f for d in along if dims for f in dims[d])
    return replace(rule, traded=traded, lower=partial(lower, dims))


def _cut(local: Local, dim: Dim) -> Dim:
    """Return a dim's factors that are split."""
    return tuple(f for f in dim if local.ways(f) > 1)


def _along(call: OpCall, large: tuple[int, ...], sets: Sets, lower: Lower | None = None) -> Rule:
    """Return the rule of tensors of shape ``large``, whole along the call's dim, and tensors without that
    dim.
    """
    factors = Factors()
    dim = call["dim"] % len(large)
    full = _whole_at(factors, large, {dim})
    part = (*full[:dim], *full[dim + 1 :])
    operands = [full if len(t.shape) == len(large) else part for t in call.tensors]
    results = [full if len(r.shape) == len(large) else part for r in results_of(call)]
    return factors.rule(call, operands, results, sets, lower)


@rule_for("aten.select.int", "aten.unbind.int")
def select(call: OpCall) -> Rule:
    """Rule of ``select``; the selected dim stays whole: ([a,b])->([a]) replicate={b}."""
    return _along(call, call["self"].shape, FIRST)


@rule_for("aten.select_backward")
def select_backward(call: OpCall) -> Rule:
    return _along(call, call.result.shape, FIRST, local_sizes)


@rule_for("aten.select_scatter")
def select_scatter(call: OpCall) -> Rule:
    return _along(call, call["self"].shape, ((0, 1),))


@rule_for("aten.stack")
def stack(call: OpCall) -> Rule:
    return _along(call, call.result.shape, (tuple(range(len(call.tensors))),))


@rule_for("aten.diagonal", "aten.diagonal_backward", "aten.diag_embed")
def diagonal(call: OpCall) -> Rule:
    """Rule of diagonals; the two dims of the diagonal stay whole, and so does the diagonal's dim."""
    inverse = call.target != "aten.diagonal"
    large, small = _in_order(inverse, call.tensors[0].shape, call.result.shape)
    gone = {call["dim1"] % len(large), call["dim2"] % len(large)}
    factors = Factors()
    full = _whole_at(factors, large, gone)
    part = (*(dim for d, dim in enumerate(full) if d not in gone), factors.whole(small[-1]))
    lower = local_sizes if call.target == "aten.diagonal_backward" else None
    return _moved(call, factors, *_in_order(inverse, full, part), lower)


@rule_for("aten.unfold", "aten.unfold_backward")
def unfold(call: OpCall) -> Rule:
    """Rule of windows along a dim, which stays whole: ([a,b])->([a,c,d]) replicate={b,c,d}."""
    factors = Factors()
    backward = call.target == "aten.unfold_backward"
    large, small = _in_order(backward, call.tensors[0].shape, call.result.shape)
    dim = call["dim" if backward else "dimension"] % len(large)
    full = _whole_at(factors, large, {dim})
    windows = (*full[:dim], factors.whole(small[dim]), *full[dim + 1 :], factors.whole(small[-1]))
    return _moved(call, factors, *_in_order(backward, full, windows), local_sizes if backward else None)


@rule_for("aten.view_as_real", "aten.view_as_complex")
def complex_view(call: OpCall) -> Rule:
    """Rule of complex views; the last dim of the real side holds real and imaginary parts."""
    factors = Factors()
    inverse = call.target == "aten.view_as_complex"
    dims = factors.shape((call.result if inverse else call["self"]).shape)
    return _moved(call, factors, *_in_order(inverse, dims, (*dims, factors.whole(2))))
