"""Lowerings of ops that move elements: rolls, flips, padding, windows, repeats, pixel shuffles.

``repeat`` and pixel shuffles become views. The others read their tensor at indices that are computed from
the index of the result's element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize, Size
from shardc.passes.fuse.lower.gather import Read, outside
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value, View

MAX_WINDOWS = 32
"""Limit of windows that an element is in, since their gradients are added one by one."""
At = Callable[[Scalars, Scalar, int], Scalar]
"""Function (scalars, index along a dim of the result, size of the source's dim) -> index in the source."""


def static(*types: TensorType) -> None:
    """Raise NotLowered if any size is symbolic."""
    if any(isinstance(n, Size) for type_ in types for n in type_.shape):
        raise NotLowered("moves elements of dims of symbolic size")


def moved(b: Builder, x: Value, type_: TensorType, at: dict[int, At]) -> Value:
    """Return ``x`` read at computed indices along the dims in ``at``; it has as many dims as the result."""
    static(x.type, type_)
    dims = sorted(at)
    kept = [None if d in at else d for d in range(len(type_.shape))]

    def compute(s: Scalars, read: Read, *places: Scalar) -> Scalar:
        found = [at[d](s, place, x.type.shape[d]) for d, place in zip(dims, places, strict=True)]
        return s.cast(read(*found), s.compute)

    return b.point(compute, [], type_, indices=[[d] for d in dims], tables=[(x, kept)])


@lowers("aten.roll")
def roll(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (x,), (type_,) = values, results(call)
    static(type_)
    rank, shape = len(type_.shape), type_.shape
    shifts, dims = call["shifts"], call["dims"]
    if not dims or any(not isinstance(n, int) for n in shifts):
        raise NotLowered("rolls the flattened tensor")
    by: dict[int, int] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        by[dim % rank] = (by.get(dim % rank, 0) + shift) % shape[dim]

    def rolled(shift: int) -> At:
        def at(s: Scalars, place: Scalar, size: int) -> Scalar:
            first = s.sub(place, shift)
            return s.select(s.compare("lt", first, 0), s.add(first, size), first)

        return at

    return [moved(b, x, type_, {d: rolled(n) for d, n in by.items() if n} or {0: lambda s, i, n: i})]


@lowers("aten.flip")
def flip(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (x,), (type_,) = values, results(call)
    dims = {d % len(type_.shape) for d in call["dims"]}
    if not dims:
        raise NotLowered("does not flip any dim")
    return [moved(b, x, type_, {d: lambda s, i, n: s.sub(n - 1, i) for d in dims})]


def _mirrored(before: int) -> At:
    def at(s: Scalars, place: Scalar, size: int) -> Scalar:
        inner = s.math("absi", s.sub(place, before))
        return s.sub(size - 1, s.math("absi", s.sub(size - 1, inner)))

    return at


def _nearest(before: int) -> At:
    return lambda s, place, size: s.minimum(s.maximum(s.sub(place, before), 0), size - 1)


@lowers(*(f"aten.{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)))
def pad_with_own(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower padding with a tensor's own elements: reflected at the edges, or the edges repeated."""
    (x,), (type_,) = values, results(call)
    rank, mirrors = len(type_.shape), "reflection" in call.target
    ends = zip(call["padding"][::2], call["padding"][1::2], strict=True)
    padded = {rank - 1 - d: before for d, (before, after) in enumerate(ends) if before or after}
    if not padded:
        raise NotLowered("does not pad any dim")
    return [moved(b, x, type_, {d: (_mirrored if mirrors else _nearest)(n) for d, n in padded.items()})]


@lowers("aten.unfold", "aten.unfold_copy")
def unfold(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower windows along a dim. The elements of a window become a new last dim."""
    (x,), (type_,) = values, results(call)
    static(x.type, type_)
    rank, step = len(x.type.shape), call["step"]
    if not rank:
        raise NotLowered("works on a number, not a tensor")
    dim = call["dimension"] % rank
    kept = [None if d == dim else d for d in range(rank)]

    def compute(s: Scalars, read: Read, window: Scalar, place: Scalar) -> Scalar:
        return s.cast(read(s.add(s.mul(window, step), place)), s.compute)

    return [b.point(compute, [], type_, indices=[[dim], [rank]], tables=[(x, kept)])]


@lowers("aten.unfold_backward")
def unfold_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the gradient of windows: each element adds up the windows that contain it."""
    (grad,), (type_,) = values, results(call)
    static(grad.type, type_)
    rank, size, step = len(type_.shape), call["size"], call["step"]
    dim = call["dim"] % rank
    windows, most = grad.type.shape[dim], -(-size // step)
    if most > MAX_WINDOWS:
        raise NotLowered(f"adds up more than {MAX_WINDOWS} windows for an element")
    kept = [None if d in (dim, rank) else d for d in range(rank + 1)]

    def compute(s: Scalars, read: Read, at: Scalar) -> Scalar:
        total = s.constant(0, s.compute)
        last = s.op("arith.divsi", s.pair(at, step), torch.int64)
        for before in range(most):
            window = s.sub(last, before)
            place = s.sub(at, s.mul(window, step))
            beyond = s.bit("or", outside(s, window, 0, windows), s.compare("ge", place, size))
            found = read(s.select(beyond, 0, window), s.select(beyond, 0, place))
            total = s.add(total, s.select(beyond, 0, s.cast(found, s.compute)))
        return total

    return [b.point(compute, [], type_, indices=[[dim]], tables=[(grad, kept)], reads=most)]


def _as_view(
    b: Builder, x: Value, type_: TensorType, operand: str, result: str, sizes: dict[str, AnySize]
) -> list[Value]:
    """Return ``x`` as a view, described as in einops: each word is a dim, each letter a factor of it.

    ``operand``, ``result``: dims of ``x`` and of the result. ``sizes``: size of each factor.
    """
    static(x.type, type_)
    of_operand, of_result = (tuple(map(tuple, dims.split())) for dims in (operand, result))
    view = View(x, of_operand, of_result, tuple(sizes.items()))
    seen = Value(TensorType(type_.shape, x.type.dtype), None, view, x.node)
    return [b.point(lambda s, v: s.cast(v, s.compute), [seen], type_)]


@lowers("aten.pixel_shuffle", "aten.pixel_unshuffle")
def pixel_shuffle(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower pixel shuffles, which turn channels into pixels, and their inverse."""
    (x,), (type_,) = values, results(call)
    static(x.type, type_)
    up = call.target == "aten.pixel_shuffle"
    factor = call["upscale_factor" if up else "downscale_factor"]
    *before, channels, height, width = type_.shape if up else x.type.shape
    lead = "abde"[: len(before)]
    if len(lead) != len(before):
        raise NotLowered("shuffles a tensor of more than 7 dims")
    sizes = dict(zip(lead, before, strict=True)) | {"c": channels, "y": factor, "x": factor}
    sizes |= {"h": height // factor, "w": width // factor}
    few, many = f"{' '.join(lead)} cyx h w", f"{' '.join(lead)} c hy wx"
    return _as_view(b, x, type_, *((few, many) if up else (many, few)), sizes)


@lowers("aten.repeat")
def repeat(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower repeats along dims: each dim of the result has a factor that the tensor lacks."""
    (x,), (type_,) = values, results(call)
    static(x.type, type_)
    times, more = call["repeats"], len(type_.shape) - len(x.type.shape)
    shape = (*[1] * more, *x.type.shape)
    if len(shape) > 13:
        raise NotLowered("repeats a tensor of more than 13 dims")
    inner, outer = "abcdefghijklm"[: len(shape)], "nopqrstuvwxyz"[: len(shape)]
    sizes = dict(zip(inner, shape, strict=True)) | dict(zip(outer, times, strict=True))
    result = " ".join(f"{o}{i}" for o, i in zip(outer, inner, strict=True))
    return _as_view(b, x, type_, " ".join(inner[more:]), result, sizes)
