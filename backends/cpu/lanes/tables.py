"""exp, exp2 and erf of 16 f32 lanes by low-degree polynomials, with tables in vector registers.

AVX-512's ``vpermps`` looks up 16 numbers in a register with one instruction (P. T. P. Tang, "Table-driven
implementation of the exponential function", 1989). So the polynomials cover short intervals: exp takes three
multiply-adds instead of six, and erf five and no exponential. The coefficients interpolate the function at
Chebyshev nodes. They are computed here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import cos, erf, expm1, log, pi

from torch_mlir import ir

from shardc.backends.cpu.lanes.scalars import OGT, ROUNDER, Expansion, Scalars

LANES = 16
_EXACT, _TO_NEAREST = -1, 4  # all lanes; the rounding mode of the control register
_NEARER_TO_ZERO = 2
"""Mode of vrangeps: the smaller magnitude, with the first operand's sign; the number, if the other is NaN."""
_LOG2_E, _LOG2_E_REST = 1.44269502162933349609375, 1.925963033500011e-08
_SIXTEENTHS = 1.5 * 2.0**19
"""Number whose addition rounds an f32 to sixteenths, which the last four bits count."""
_ERF_STEP, _ERF_IS_ONE = 4435 / 2**14, 4.0
"""Step near 17/64, at whose multiples erf is close to f32 numbers."""


def _exp(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute 2**(x log2(e)). The exponent's difference from the nearest sixteenth is exact."""
    shifted = s.fma(x, s.number(_LOG2_E), s.number(_SIXTEENTHS))
    n = s.sub(shifted, s.number(_SIXTEENTHS))
    r = s.fma(x, s.number(_LOG2_E_REST), s.fma(x, s.number(_LOG2_E), s.arithmetic("arith.negf", n)))
    return _power_of_two(s, shifted, n, r)


def _exp2(s: Scalars, x: ir.Value) -> ir.Value:
    shifted = s.add(x, s.number(_SIXTEENTHS))
    n = s.sub(shifted, s.number(_SIXTEENTHS))
    return _power_of_two(s, shifted, n, s.sub(x, n))


def _power_of_two(s: Scalars, shifted: ir.Value, n: ir.Value, r: ir.Value) -> ir.Value:
    """Return 2**(n + r), for a number of sixteenths n, in the last bits of ``shifted``, and a small r.

    If n is so large that r is not small, or NaN, any power between 1/2 and 4 is right, because the scale is
    then 0, infinity or NaN. ``vscalefps`` uses the integer part of n.
    """
    bound = s.number(1 / 30)
    number = _integer(s, 32, _NEARER_TO_ZERO)
    r = _intrinsic(s, "mask.range.ps.512", r, bound, number, bound, *_whole(s))
    part = _looked_up(s, shifted, [2 ** (k / 16) for k in range(16)])
    c1, c2, c3 = map(s.number, _interpolated(lambda u: expm1(u * log(2)) / u if u else log(2), 0, 1 / 32, 2))
    power = s.fma(s.mul(part, r), s.fma(s.fma(c3, r, c2), r, c1), part)
    return _intrinsic(s, "mask.scalef.ps.512", power, n, power, *_whole(s))


def _erf(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute erf from |x|, as a polynomial in the distance u to the nearest multiple of a step.

    The polynomial around 0 is 1 * u, which is exact, plus odd powers of u. So small results have the same
    relative accuracy.
    """
    size = s.arithmetic("math.absf", x)
    size = s.select(s.compare(OGT, size, s.number(_ERF_IS_ONE)), s.number(_ERF_IS_ONE), size)
    shifted = s.fma(size, s.number(1 / _ERF_STEP), s.number(ROUNDER))
    n = s.sub(shifted, s.number(ROUNDER))
    u = s.fma(n, s.number(-_ERF_STEP), size)
    start, *others, found = (_looked_up(s, shifted, coefficients) for coefficients in _erf_parts())
    for coefficient in reversed(others):
        found = s.fma(found, u, coefficient)
    start = s.select(s.compare(OGT, u, start), u, start)
    return s.arithmetic("math.copysign", s.fma(found, u, start), x)


TABLED: dict[str, Expansion] = {"math.exp": _exp, "math.exp2": _exp2, "math.erf": _erf}
"""Replacements of :data:`~shardc.backends.cpu.lanes.expand.EXPANSIONS` in vectors of ``LANES``."""


@cache
def _erf_parts() -> list[tuple[float, ...]]:
    """Return the coefficients of all intervals, for each power of u from 0 to 5."""
    found = [_interpolated(erf, k * _ERF_STEP, _ERF_STEP / 2, 5) for k in range(LANES)]
    found[0] = [c - (power == 1) if power % 2 else 0.0 for power, c in enumerate(found[0])]
    return list(zip(*found, strict=True))


def _interpolated(
    function: Callable[[float], float], centre: float, width: float, degree: int
) -> list[float]:
    """Return the coefficients, lowest first, of the polynomial in x - ``centre`` that interpolates
    ``function``.

    The nodes are Chebyshev's, within ``width`` on both sides; the method is Newton's divided differences.
    """
    nodes = [width * cos(pi * (2 * k + 1) / (2 * degree + 2)) for k in range(degree + 1)]
    nodes = [0.0 if 2 * k == degree else u for k, u in enumerate(nodes)]
    differences = [function(centre + u) for u in nodes]
    for order in range(1, degree + 1):
        for k in range(degree, order - 1, -1):
            differences[k] = (differences[k] - differences[k - 1]) / (nodes[k] - nodes[k - order])
    found = [0.0] * (degree + 1)
    for difference, node in zip(reversed(differences), reversed(nodes), strict=True):
        found = [low - node * high for low, high in zip([0.0, *found[:-1]], found, strict=True)]
        found[0] += difference
    return found


def _looked_up(s: Scalars, shifted: ir.Value, numbers: Sequence[float]) -> ir.Value:
    """Look up one of 16 numbers by the last four bits of each lane."""
    attributes = [ir.FloatAttr.get(ir.F32Type.get(), n) for n in numbers]
    table = s.make("arith.constant", type_=s.float, value=ir.DenseElementsAttr.get(attributes, s.float))
    return _intrinsic(s, "permvar.sf.512", table, s.make("arith.bitcast", shifted, type_=s.integer))


def _whole(s: Scalars) -> tuple[ir.Value, ir.Value]:
    return _integer(s, 16, _EXACT), _integer(s, 32, _TO_NEAREST)


def _intrinsic(s: Scalars, name: str, *operands: ir.Value) -> ir.Value:
    return s.intrinsic(f"llvm.x86.avx512.{name}", *operands)


def _integer(s: Scalars, bits: int, value: int) -> ir.Value:
    type_ = ir.IntegerType.get_signless(bits)
    return s.make("arith.constant", type_=type_, value=ir.IntegerAttr.get(type_, value))
