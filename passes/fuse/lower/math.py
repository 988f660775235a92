"""Lowerings of mathematical functions and powers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf

import torch

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.lower.scalars import Operand, Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, point, pointwise, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value


def _narrow(b: Builder, call: OpCall, values: Sequence[Value], *, name: str) -> list[Value]:
    """Lower a function that has arithmetic for vectors in f32 alone."""
    if results(call)[0].dtype == torch.float64:
        raise NotLowered("is a function that ATen computes faster in f64")
    return [point(b, call, values, lambda s, *x: s.math(name, *x), heavy=True)]


# These have the same names in ATen and in MLIR's math dialect.
for _name in ("cos", "erf", "exp", "exp2", "expm1", "log", "log1p", "log2", "rsqrt", "sin", "sqrt", "tanh"):
    pointwise(_name, lambda s, x, _name=_name: s.math(_name, x), heavy=True)
NARROW = "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "log10", "sinh", "tan"
"""Functions that stay calls in f64."""
for _name in NARROW:
    lowers(f"aten.{_name}")(partial(_narrow, name=_name))
for _name in ("ceil", "floor", "trunc"):  # integers are returned unchanged
    pointwise(_name, lambda s, x, _name=_name: s.math(_name, x) if x.dtype.is_floating_point else x)
pointwise("round", lambda s, x: s.math("roundeven", x) if x.dtype.is_floating_point else x)
pointwise("frac", lambda s, x: s.sub(x, s.math("trunc", x)))


@lowers("aten.abs")
def absolute(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    dtype = results(call)[0].dtype
    if dtype == torch.uint8:
        return [point(b, call, values, lambda s, x: x)]
    name = "absf" if dtype.is_floating_point else "absi"
    return [point(b, call, values, lambda s, x: s.math(name, x))]


def sigmoid(s: Scalars, x: Scalar) -> Scalar:
    return s.div(1.0, s.add(s.math("exp", s.negate(x)), 1.0))


pointwise("sigmoid", sigmoid, heavy=True)


def _log_times(s: Scalars, x: Operand, y: Operand) -> Scalar:
    """Return ``x * log(y)``. It is 0 where ``x`` is 0, unless ``y`` is NaN."""
    x, y = s.cast(x, s.compute), s.cast(y, s.compute)
    product = s.mul(x, s.math("log", y))
    zero = s.bit("and", s.compare("eq", x, 0.0), s.compare("eq", y, y))
    return s.select(zero, 0.0, product)


def _log_of_sum(s: Scalars, x: Scalar, y: Scalar) -> Scalar:
    """Return ``log(exp(x) + exp(y))``."""
    most, gap = s.maximum(x, y), s.math("absf", s.sub(x, y))
    same = s.bit("and", s.compare("eq", x, y), s.compare("eq", s.math("absf", x), inf))
    return s.select(same, x, s.add(most, s.math("log1p", s.math("exp", s.negate(gap)))))


def _numbers(
    s: Scalars, x: Scalar, nan: float | None = None, high: float | None = None, low: float | None = None
) -> Scalar:
    if not x.dtype.is_floating_point:
        return x
    most = torch.finfo(x.dtype).max
    low_, high_ = -most if low is None else low, most if high is None else high
    x = s.select(s.compare("eq", x, inf), high_, s.select(s.compare("eq", x, -inf), low_, x))
    return s.select(s.compare("ne", x, x), nan or 0.0, x)


pointwise("xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other", _log_times, heavy=True)
pointwise("logaddexp", _log_of_sum, heavy=True)


@lowers("aten.nan_to_num")
def nan_to_num(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    if results(call)[0].dtype.itemsize == 2 and None in (call["posinf"], call["neginf"]):
        raise NotLowered("uses the largest 16-bit number as infinity")
    return [point(b, call, values, _numbers)]


CHEAP_POWERS = frozenset([*range(9), 0.5, 1.5, 2.5, -0.5, -1.5, -1, -2])
"""Exponents whose powers are products, quotients and roots, within 4 units in the last place."""


def _power(s: Scalars, x: Scalar, exponent: float) -> Scalar:
    """Return ``x ** exponent``. ATen has products for exponents up to 3 (``PowKernel.cpp``), too."""
    if exponent not in CHEAP_POWERS:
        return s.math("powf", x, s.constant(exponent, x.dtype))
    match exponent:
        case -0.5:
            return s.math("rsqrt", x)
        case -1.5:  # x * sqrt(x) would overflow first
            return _even_at_infinity(s, x, s.div(s.math("rsqrt", x), x), 0.0)
        case -1 | -2:
            return s.div(1.0, _power(s, x, -exponent))
        case 0:
            return s.constant(1, x.dtype)
        case 0.5:
            return s.math("sqrt", x)
        case 1.5 | 2.5:
            product = s.mul(_power(s, x, int(exponent)), s.math("sqrt", x))
            return _even_at_infinity(s, x, product, inf)
        case 1:
            return x
    half = _power(s, x, exponent // 2)
    square = s.mul(half, half)
    return s.mul(square, x) if exponent % 2 else square


def _even_at_infinity(s: Scalars, x: Scalar, power: Scalar, end: float) -> Scalar:
    """Return ``power``, and ``end`` where ``x`` is minus infinity, of which a root is NaN."""
    return s.select(s.compare("eq", x, -inf), end, power)


@lowers("aten.pow.Tensor_Scalar")
def pow_scalar(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    exponent = call["exponent"]
    if not results(call)[0].dtype.is_floating_point and exponent not in (0, 1, 2, 3):
        raise NotLowered("is a power of integers")
    return [point(b, call, values, _power, heavy=exponent not in CHEAP_POWERS)]


@lowers("aten.pow.Scalar", "aten.pow.Tensor_Tensor")
def pow_tensor(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    if not results(call)[0].dtype.is_floating_point:
        raise NotLowered("is a power of integers")
    return [point(b, call, values, lambda s, x, y: s.math("powf", s.cast(x, y.dtype), y), heavy=True)]
