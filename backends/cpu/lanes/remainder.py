"""Expansion of the remainder of a division (``fmod``), exact for all f32, to arithmetic in f64.

The quotient of two f32 has up to 277 bits. Each step subtracts a multiple of ``y * 2**k`` that leaves less
than three quarters of ``y * 2**k``. Its quotient has at most 50 bits, so an estimate by the reciprocal of y
is off by less than one eighth. What remains is a multiple of the last place of x or y and fits into an f64:
the fused multiply-add is exact.
"""

from __future__ import annotations

from math import frexp, inf

from torch_mlir import ir

from shardc.backends.cpu.lanes.scalars import OEQ, OLT, Scalars

STEP_BITS = 50
"""Bits of the quotient that a step removes."""
_LARGEST, _LEAST = 128, -149
"""Powers of two: above all f32, and the least f32."""


def fmod(s: Scalars, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return ``x - trunc(x / y) * y``, with the sign of x."""
    wide = (s.make("arith.extf", s.arithmetic("math.absf", v), type_=s.double) for v in (x, y))
    rest, divisor = wide
    inverse = s.div(s.wide(1.0), divisor)
    for step in reversed(range(_steps(y))):
        power = float(2 ** (STEP_BITS * step))
        estimate = s.mul(rest, s.mul(inverse, s.wide(1 / power)))
        quotient = s.arithmetic("math.roundeven", estimate)
        multiple = s.mul(divisor, s.wide(-power))
        rest = s.fma(quotient, multiple, rest)
    above = s.select(s.compare(OLT, rest, s.wide(0.0)), s.add(rest, divisor), rest)
    signed = s.arithmetic("math.copysign", s.make("arith.truncf", above, type_=s.float), x)
    endless = s.compare(OEQ, s.arithmetic("math.absf", y), s.number(inf))
    finite = s.compare(OLT, s.arithmetic("math.absf", x), s.number(inf))
    return s.select(s.make("arith.andi", endless, finite), x, signed)


def _steps(y: ir.Value) -> int:
    """How many steps the largest quotient by ``y`` needs, which may be a constant."""
    least = _LEAST
    if not isinstance(y, ir.BlockArgument) and y.owner.name == "arith.constant":
        attribute = y.owner.attributes["value"]
        number = ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else 0.0
        if 0 < abs(number) < inf:
            least = frexp(number)[1] - 1
    return -(-(_LARGEST - least) // STEP_BITS)
