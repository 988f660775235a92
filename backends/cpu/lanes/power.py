"""``x ** y`` of f32, as ``exp2(y * log2(x))`` in f64.

The logarithm is the series of 2 atanh(f / (2 + f)) for x = 2**e (1 + f), and exp2 the series of the
exponential function. Both are long enough for an error of one unit in the last place of f32.
"""

from __future__ import annotations

from math import factorial, inf, log

from torch_mlir import ir

from shardc.backends.cpu.lanes.logarithm import wide_log_parts
from shardc.backends.cpu.lanes.scalars import OEQ, OLT, ROUNDER_OF_F64, Scalars

_LOG2 = [2 / log(2) / (2 * k + 1) for k in reversed(range(7))]
_EXP2 = [log(2) ** k / factorial(k) for k in reversed(range(9))]
_MOST_FACTORS = 64
"""Largest whole exponent whose power is a product in f64, whose error is far below a unit of f32."""
_MOST = 200.0
"""2**200 is infinite in f32, and 2**-200 is 0."""


def power(s: Scalars, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return ``x ** y`` with the special values of C's ``powf``."""
    if (whole := _whole(y)) is not None:
        product = _product(s, _extended(s, x), abs(whole))
        product = s.div(s.wide(1.0), product) if whole < 0 else product
        return s.make("arith.truncf", product, type_=s.float)
    size = s.arithmetic("math.absf", x)
    exponent = s.mul(_extended(s, y), _log2(s, size))
    # 0 * inf and NaN * 0: 1 to any power, and any number to the power 0, are 1.
    one = s.make("arith.ori", s.compare(OEQ, x, s.number(1.0)), s.compare(OEQ, y, s.number(0.0)))
    turned = s.make("arith.andi", s.compare(OEQ, size, s.number(1.0)), s.compare(OEQ, y, y))
    exponent = s.select(s.make("arith.ori", one, turned), s.wide(0.0), exponent)
    return _signed(s, x, y, size, s.make("arith.truncf", _exp2(s, exponent), type_=s.float))


def _whole(y: ir.Value) -> int | None:
    """Return a constant exponent whose power is a product of few factors; None for others."""
    if isinstance(y, ir.BlockArgument) or y.owner.operation.name != "arith.constant":
        return None
    constant = y.owner.operation.attributes["value"]
    if isinstance(constant, ir.DenseElementsAttr):
        constant = constant.get_splat_value() if constant.is_splat else None
    value = ir.FloatAttr(constant).value if constant is not None else 0.5
    return int(value) if value.is_integer() and 0 < abs(value) <= _MOST_FACTORS else None


def _product(s: Scalars, x: ir.Value, count: int) -> ir.Value:
    """Return ``x ** count``, of an f64."""
    if count == 1:
        return x
    half = _product(s, x, count // 2)
    square = s.mul(half, half)
    return s.mul(square, x) if count % 2 else square


def _extended(s: Scalars, x: ir.Value) -> ir.Value:
    return s.make("arith.extf", x, type_=s.double)


def _log2(s: Scalars, size: ir.Value) -> ir.Value:
    """Return log2 of a number that is not negative, as an f64."""
    e, f = (_extended(s, part) for part in wide_log_parts(s, size))
    quotient = s.div(f, s.add(f, s.wide(2.0)))
    near = s.fma(s.polynomial(s.mul(quotient, quotient), _LOG2), quotient, e)
    near = s.select(s.compare(OEQ, size, s.number(0.0)), s.wide(-inf), near)
    return s.select(s.compare(OLT, size, s.number(inf)), near, _extended(s, size))


def _exp2(s: Scalars, x: ir.Value) -> ir.Value:
    x = s.select(s.compare(OLT, x, s.wide(-_MOST)), s.wide(-_MOST), x)
    x = s.select(s.compare(OLT, s.wide(_MOST), x), s.wide(_MOST), x)
    n = s.arithmetic("math.roundeven", x)
    long = s.of(ir.IntegerType.get_signless(64))
    bits = s.make("arith.bitcast", s.add(n, s.wide(ROUNDER_OF_F64 + 1023)), type_=long)
    shift = s.constant(long, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 52))
    scale = s.make("arith.bitcast", s.make("arith.shli", bits, shift), type_=s.double)
    return s.mul(s.polynomial(s.sub(x, n), _EXP2), scale)


def _signed(s: Scalars, x: ir.Value, y: ir.Value, size: ir.Value, result: ir.Value) -> ir.Value:
    """Set the sign for a negative x: that of x for odd y, and NaN for y that is no integer."""
    half = s.mul(y, s.number(0.5))
    whole = s.compare(OEQ, s.arithmetic("math.floor", y), y)
    even = s.compare(OEQ, s.arithmetic("math.floor", half), half)
    one = s.constant(whole.type, ir.IntegerAttr.get(ir.IntegerType.get_signless(1), 1))
    odd = s.make("arith.andi", whole, s.make("arith.xori", even, one))
    result = s.select(odd, s.arithmetic("math.copysign", result, x), result)
    inside = s.make("arith.andi", s.compare(OLT, x, s.number(0.0)), s.compare(OLT, size, s.number(inf)))
    broken = s.make("arith.andi", inside, s.make("arith.xori", whole, one))
    return s.select(broken, s.number(float("nan")), result)
