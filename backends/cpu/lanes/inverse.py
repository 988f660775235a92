"""Inverse trigonometric and hyperbolic functions of f32 as arithmetic.

The reductions and coefficients of atan and asin are from Cephes (``atanf.c``, ``asinf.c``; S. Moshier); the
hyperbolic ones are forms of log1p that do not cancel.
"""

from __future__ import annotations

from math import inf, log, nan, pi

from torch_mlir import ir

from shardc.backends.cpu.lanes import logarithm
from shardc.backends.cpu.lanes.scalars import OEQ, OGT, OLT, UNO, Scalars

_ATAN = [8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1]
"""(atan(x) - x) / x**3 in powers of x**2 for |x| up to tan(pi / 8)."""
_ASIN = [4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1]
"""(asin(x) - x) / x**3 in powers of x**2 for |x| up to 1/2."""
_EIGHTH, _THREE_EIGHTHS = 0.41421356237309503, 2.414213562373095
"""tan(pi / 8) and tan(3 pi / 8)."""
_HUGE = 1e10
"""Number beyond which its square plus 1 is its square."""
_SIGN = -(2**31)


def _odd(s: Scalars, x: ir.Value, square: ir.Value, coefficients: list[float]) -> ir.Value:
    return s.fma(s.mul(s.polynomial(square, coefficients), square), x, x)


def _atan_of_size(s: Scalars, t: ir.Value) -> ir.Value:
    """Return atan(t) for t >= 0: of t, or pi/4 and (t - 1) / (t + 1), or pi/2 and -1 / t."""
    one = s.number(1.0)
    middle, far = (s.compare(OGT, t, s.number(bound)) for bound in (_EIGHTH, _THREE_EIGHTHS))
    top = s.select(far, s.number(-1.0), s.select(middle, s.sub(t, one), t))
    bottom = s.select(far, t, s.select(middle, s.add(t, one), one))
    start = s.select(far, s.number(pi / 2), s.select(middle, s.number(pi / 4), s.number(0.0)))
    x = s.div(top, bottom)
    return s.add(start, _odd(s, x, s.mul(x, x), _ATAN))


def atan(s: Scalars, x: ir.Value) -> ir.Value:
    return s.arithmetic("math.copysign", _atan_of_size(s, s.arithmetic("math.absf", x)), x)


def atan2(s: Scalars, y: ir.Value, x: ir.Value) -> ir.Value:
    """Return the angle of (x, y), from the smaller magnitude over the larger one."""
    size_x, size_y = (s.arithmetic("math.absf", v) for v in (x, y))
    steep = s.compare(OGT, size_y, size_x)
    low, high = s.select(steep, size_x, size_y), s.select(steep, size_y, size_x)
    quotient = s.select(s.compare(OEQ, low, high), s.number(1.0), s.div(low, high))  # both may be infinite
    angle = _atan_of_size(s, s.select(s.compare(OEQ, high, s.number(0.0)), s.number(0.0), quotient))
    angle = s.select(steep, s.sub(s.number(pi / 2), angle), angle)
    is_left = s.is_set(s.make("arith.bitcast", x, type_=s.integer), _SIGN)
    angle = s.select(is_left, s.sub(s.number(pi), angle), angle)
    found = s.arithmetic("math.copysign", angle, y)
    return s.select(s.compare(UNO, x, y), s.make("arith.addf", x, y), found)


def _asin_parts(s: Scalars, t: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return whether t > 1/2, and asin(t), or asin(sqrt((1 - t) / 2)) if it is."""
    far = s.compare(OGT, t, s.number(0.5))
    square = s.select(far, s.mul(s.sub(s.number(1.0), t), s.number(0.5)), s.mul(t, t))
    x = s.select(far, s.arithmetic("math.sqrt", square), t)
    return far, _odd(s, x, square, _ASIN)


def asin(s: Scalars, x: ir.Value) -> ir.Value:
    far, found = _asin_parts(s, s.arithmetic("math.absf", x))
    found = s.select(far, s.fma(s.number(-2.0), found, s.number(pi / 2)), found)
    return s.arithmetic("math.copysign", found, x)


def acos(s: Scalars, x: ir.Value) -> ir.Value:
    far, found = _asin_parts(s, s.arithmetic("math.absf", x))
    twice = s.add(found, found)
    left = s.compare(OLT, x, s.number(0.0))
    at_end = s.select(left, s.sub(s.number(pi), twice), twice)
    return s.select(far, at_end, s.sub(s.number(pi / 2), s.arithmetic("math.copysign", found, x)))


def _log_of_twice(s: Scalars, x: ir.Value) -> ir.Value:
    return s.add(logarithm.log(s, x), s.number(log(2)))


def asinh(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute log1p(t + t**2 / (1 + sqrt(1 + t**2))) of t = |x|."""
    t, one = s.arithmetic("math.absf", x), s.number(1.0)
    square = s.mul(t, t)
    rest = s.div(square, s.add(one, s.arithmetic("math.sqrt", s.add(one, square))))
    near, huge = logarithm.log1p(s, s.add(t, rest)), s.compare(OGT, t, s.number(_HUGE))
    return s.arithmetic("math.copysign", s.select(huge, _log_of_twice(s, t), near), x)


def acosh(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute log1p(t + sqrt(2 t + t**2)) of t = x - 1."""
    t = s.sub(x, s.number(1.0))
    root = s.arithmetic("math.sqrt", s.fma(t, t, s.add(t, t)))
    near, huge = logarithm.log1p(s, s.add(t, root)), s.compare(OGT, x, s.number(_HUGE))
    found = s.select(huge, _log_of_twice(s, x), near)
    return s.select(s.compare(OLT, x, s.number(1.0)), s.number(nan), found)


def atanh(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute log1p(2 t / (1 - t)) / 2 of t = |x|."""
    t = s.arithmetic("math.absf", x)
    quotient = s.div(s.add(t, t), s.sub(s.number(1.0), t))
    quotient = s.select(s.compare(OEQ, t, s.number(1.0)), s.number(inf), quotient)
    return s.arithmetic("math.copysign", s.mul(s.number(0.5), logarithm.log1p(s, quotient)), x)
