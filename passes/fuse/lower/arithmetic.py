"""Lowerings of pointwise sums, products, quotients, extrema and bit operations.

Integers wrap. Integer division by a tensor is not lowered, because ATen raises an error for a divisor of 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.lower.scalars import Operand, Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, point, pointwise, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value


def _scaled(s: Scalars, x: Operand, alpha: Operand) -> Operand:
    return x if alpha == 1 else s.mul(s.cast(x, s.compute), alpha)


def _add(s: Scalars, x: Operand, y: Operand, alpha: Operand = 1) -> Scalar:
    return s.bit("or", x, y) if s.compute == torch.bool else s.add(x, _scaled(s, y, alpha))


def _mul(s: Scalars, x: Operand, y: Operand) -> Scalar:
    return s.bit("and", x, y) if s.compute == torch.bool else s.mul(x, y)


def _sign(s: Scalars, x: Scalar) -> Scalar:
    """Return the sign of ``x``. The sign of NaN is 0, as in ATen."""
    if x.dtype == torch.bool:
        return x
    return s.select(s.compare("gt", x, 0), 1, s.select(s.compare("lt", x, 0), -1, s.constant(0, x.dtype)))


pointwise("add.Tensor add.Scalar", _add)
pointwise("sub.Tensor sub.Scalar", lambda s, x, y, alpha=1: s.sub(x, _scaled(s, y, alpha)))
pointwise("rsub.Tensor rsub.Scalar", lambda s, x, y, alpha=1: s.sub(y, _scaled(s, x, alpha)))
pointwise("mul.Tensor mul.Scalar", _mul)
pointwise("div.Tensor div.Scalar", lambda s, x, y: s.div(x, y), heavy=True)
pointwise("reciprocal", lambda s, x: s.div(1.0, x), heavy=True)
pointwise("neg", lambda s, x: s.negate(x))
pointwise("square", lambda s, x: s.mul(x, x))
pointwise("maximum", lambda s, x, y: s.maximum(x, y))
pointwise("minimum", lambda s, x, y: s.minimum(x, y))
for _bit in ("and", "or", "xor"):
    for _name in (f"bitwise_{_bit}", f"__{_bit}__"):
        pointwise(f"{_name}.Tensor {_name}.Scalar", lambda s, x, y, _bit=_bit: s.bit(_bit, x, y))
pointwise("sign", lambda s, x: _sign(s, x))
pointwise("sgn", lambda s, x: _sign(s, x))
pointwise("addcmul", lambda s, x, a, b, value=1: s.add(x, s.mul(_scaled(s, a, value), b)))
pointwise("addcdiv", lambda s, x, a, b, value=1: s.add(x, s.div(_scaled(s, a, value), b)), heavy=True)


def _lerp(s: Scalars, x: Scalar, end: Scalar, weight: Operand) -> Scalar:
    """Return ``x + weight * (end - x)`` by the one of ATen's two formulas that is exact at the nearer end.

    Source: aten/src/ATen/native/Lerp.h.
    """
    gap = s.sub(end, x)
    if not isinstance(weight, Scalar):
        near = abs(weight) < 0.5
        return s.add(x, s.mul(gap, weight)) if near else s.sub(end, s.mul(gap, 1 - weight))
    near_start = s.add(x, s.mul(gap, weight))
    near_end = s.sub(end, s.mul(gap, s.sub(1.0, weight)))
    return s.select(s.compare("lt", s.math("absf", weight), 0.5), near_start, near_end)


pointwise("lerp.Tensor lerp.Scalar", _lerp)


@lowers("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide", "aten.floor_divide.Scalar")
def divide_rounded(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    mode = "floor" if "floor_divide" in call.target else call["rounding_mode"]
    if not results(call)[0].dtype.is_floating_point:
        divisor = call["other"]
        if mode != "floor" or not isinstance(divisor, int) or divisor <= 0:
            raise NotLowered("divides integers by a value that may be 0")
        return [point(b, call, values, lambda s, x, y, *_: s.floor_divide(x, y), heavy=True)]
    if mode != "trunc" or results(call)[0].dtype.itemsize == 2:
        raise NotLowered("rounds a quotient that ATen first rounds or corrects")
    return [point(b, call, values, lambda s, x, y, *_: s.math("trunc", s.div(x, y)), heavy=True)]


@lowers(*(f"aten.{name}.{kind}" for name in ("remainder", "fmod") for kind in ("Scalar", "Tensor")))
@lowers("aten.remainder.Scalar_Tensor")
def remainder(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """What a division leaves: ``fmod`` has the sign of x, ``remainder`` that of y."""
    dtype, divisor, signed = results(call)[0].dtype, call["other"], "remainder" in call.target
    if dtype == torch.float64:
        raise NotLowered("is a remainder in f64, for which LLVM calls the C library")
    if not dtype.is_floating_point and not (
        isinstance(divisor, int) and dtype != torch.bool and 0 < divisor <= torch.iinfo(dtype).max
    ):
        raise NotLowered("divides integers by what may be 0")

    def compute(s: Scalars, x: Operand, y: Operand) -> Scalar:
        x, y = s.pair(x, y)
        if not dtype.is_floating_point:
            floors = signed or dtype == torch.uint8
            whole = s.floor_divide(x, y) if floors else s.op("arith.divsi", [x, y], x.dtype)
            return s.sub(x, s.mul(whole, y))
        rest = s.op("arith.remf", [x, y], x.dtype)
        if not signed:
            return rest
        differ = s.bit("xor", s.compare("lt", rest, 0.0), s.compare("lt", y, 0.0))
        return s.select(s.bit("and", differ, s.compare("ne", rest, 0.0)), s.add(rest, y), rest)

    return [point(b, call, values, compute, heavy=True)]


@lowers(*(f"aten.clamp{bound}{kind}" for bound in ("", "_min", "_max") for kind in ("", ".Tensor")))
def clamp(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower clamps. NaN stays NaN. If the lower bound exceeds the upper one, the result is the upper one."""
    low = "clamp_max" not in call.target and call["min"] is not None
    high = "clamp_min" not in call.target and call["max"] is not None

    def compute(s: Scalars, x: Scalar, *bounds: Operand | None) -> Scalar:
        given = [bound for bound in bounds if bound is not None]
        if low:
            x = s.maximum(x, given.pop(0))
        return s.minimum(x, given.pop(0)) if high else x

    return [point(b, call, values, compute)]


@lowers(
    *(f"aten.{name}.{kind}" for name in ("__lshift__", "__rshift__") for kind in ("Scalar", "Tensor")),
    *(f"aten.bitwise_{to}_shift.{kind}" for to in ("left", "right") for kind in ("Tensor_Scalar", "Tensor")),
)
def shift(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower shifts by any number of bits.

    If the number is negative, or at least the dtype's width, no bits of ``x`` remain: the result is 0, or
    the sign for right shifts.
    """
    dtype = results(call)[0].dtype
    if dtype.is_floating_point or dtype == torch.bool:
        raise NotLowered(f"shifts the bits of a {dtype} tensor")
    left, bits = "lshift" in call.target or "left" in call.target, 8 * dtype.itemsize

    def compute(s: Scalars, x: Operand, by: Operand) -> Scalar:
        x, by = s.pair(x, by)
        if dtype == torch.uint8:
            x, by = s.cast(x, torch.int32), s.cast(by, torch.int32)
        beyond = s.bit("or", s.compare("lt", by, 0), s.compare("ge", by, bits))
        if left:
            return s.select(beyond, 0, s.op("arith.shli", [x, s.select(beyond, 0, by)], x.dtype))
        return s.op("arith.shrsi", [x, s.select(beyond, x.dtype.itemsize * 8 - 1, by)], x.dtype)

    return [point(b, call, values, compute)]
