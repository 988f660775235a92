"""exp, sin, erf, tanh and others of f32 as arithmetic.

Sources: the range reduction of exp and the coefficients of sin and cos are from Cephes (``expf.c``,
``sinf.c``; S. Moshier). erf uses the minimax polynomials of N. Juffa (StackOverflow 35148198). The
coefficients of exp and tanh are least-squares fits of the relative error, reweighted until it is even.
``test/unit/backends/cpu/test_polynomials.py`` asserts the errors, in ulp against f64.
"""

from __future__ import annotations

from functools import reduce
from math import ldexp, pi

from torch_mlir import ir

from shardc.backends.cpu.lanes.scalars import OEQ, OGT, OLT, ROUNDER_OF_F64, Scalars

_LOG2_E = 1.44269504088896341
_INVERSE_TURN, _INVERSE_TURN_BITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041F, 198
"""1 / (2 pi) * 2**198, whose first two bits are 0."""
_PART_BITS = 28
_PARTS_OF_INVERSE_TURN = [
    ldexp(_INVERSE_TURN >> (_INVERSE_TURN_BITS - end) & ((1 << _PART_BITS) - 1), -end)
    for end in range(2 + _PART_BITS, _INVERSE_TURN_BITS + 1, _PART_BITS)
]

LARGEST_QUICK_ANGLE = 2.0**15
"""Largest argument whose multiple of pi / 2 three f32 of :data:`_HALF_PI` hold precisely enough."""
_HALF_PI = [1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15]
"""pi / 2 as a sum of f32."""

_EXP = [1.3814534759e-3, 8.3687454462e-3, 4.1668392718e-2, 1.6666521132e-1, 4.9999994040e-1]
"""(exp(r) - 1 - r) / r**2 for |r| up to ln(2) / 2: exp(r) to 3.1e-9."""
_TANH = [-5.716541176e-3, 2.064899369e-2, -5.374260882e-2, 1.333147502e-1, -3.333328308e-1]
"""(tanh(x) - x) / x**3 in powers of x**2 for |x| up to 0.625: tanh(x) to 4.3e-9."""

_SINH = [2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1]
"""(sinh(x) - x) / x**3 in powers of x**2 for |x| up to 1 (Cephes, ``sinhf.c``)."""
_TAN = [
    *(9.38540185543e-3, 3.11992232697e-3, 2.44301354525e-2, 5.34112807005e-2),
    *(1.33387994085e-1, 3.33331568548e-1),
]
"""(tan(x) - x) / x**3 in powers of x**2 for |x| up to pi / 4 (Cephes, ``tanf.c``)."""


def _exp_of(s: Scalars, r: ir.Value) -> ir.Value:
    """Return exp(r) - 1."""
    return s.fma(s.polynomial(r, _EXP), s.mul(r, r), r)


def _exp_parts(s: Scalars, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Split x = n ln 2 + r with an integer n; return n as an i32, and exp(r) - 1."""
    n, i = s.rounded(x, _LOG2_E)
    r = s.fma(n, s.number(-0.693145751953125), x)
    r = s.fma(n, s.number(-1.428606765330187e-06), r)
    return i, _exp_of(s, r)


def exp(s: Scalars, x: ir.Value) -> ir.Value:
    inside, is_zero = _without_zeros(s, x, -104.0, 88.8)
    n, minus_one = _exp_parts(s, inside)
    return s.select(is_zero, s.number(0.0), s.scaled(s.add(minus_one, s.number(1.0)), n))


def exp2(s: Scalars, x: ir.Value) -> ir.Value:
    x, is_zero = _without_zeros(s, x, -151.0, 128.5)
    n, i = s.rounded(x)
    r = s.mul(s.sub(x, n), s.number(0.6931471805599453))
    return s.select(is_zero, s.number(0.0), s.scaled(s.add(_exp_of(s, r), s.number(1.0)), i))


def _without_zeros(s: Scalars, x: ir.Value, low: float, high: float) -> tuple[ir.Value, ir.Value]:
    """Return an exponent of at most ``high``, and whether ``x`` is below ``low``, where the power is 0.

    There the exponent is 0: a product that underflows takes an Intel core some 150 cycles, and masked scores
    are -inf.
    """
    is_zero = s.compare(OLT, x, s.number(low))
    x = s.select(is_zero, s.number(0.0), x)
    return s.select(s.compare(OGT, x, s.number(high)), s.number(high), x), is_zero


def expm1(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute 2**n (exp(r) - 1) + (2**n - 1). Nothing cancels, because n is 0 for small results."""
    inside = s.clamp(x, -17.5, 88.0)
    n, minus_one = _exp_parts(s, inside)
    scale = s.power_of_two(n)
    small = s.fma(scale, minus_one, s.sub(scale, s.number(1.0)))
    large = s.compare(OGT, x, s.number(88.0))
    return s.select(large, exp(s, x), small)


def erf(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute an odd polynomial near 0; beyond, 1 - exp of a polynomial, which keeps 1 - |erf| accurate."""
    t, q = s.clamp(s.arithmetic("math.absf", x), 0.0, 4.0), s.mul(x, x)
    far = [-1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1, -6.34846687e-1]
    outer = s.polynomial(t, [*far, -1.28717512e-1])
    # The argument is from -20 to 0, so the result is a normal number.
    n, minus_one = _exp_parts(s, s.fma(outer, t, s.arithmetic("arith.negf", t)))
    outer = s.sub(s.number(1.0), s.mul(s.add(minus_one, s.number(1.0)), s.power_of_two(n)))
    near = [-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1]
    inner, is_far = s.polynomial(q, near), s.compare(OGT, t, s.number(0.927734375))
    return s.select(is_far, s.arithmetic("math.copysign", outer, x), s.fma(inner, x, x))


def tanh(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute an odd polynomial near 0, and beyond 1 - 2 / (exp(2 |x|) + 1), by one division.

    Small x come out as they are, so that x - tanh(x) is not the rounding error of a quotient.
    """
    t, q = s.clamp(s.arithmetic("math.absf", x), 0.0, 10.0), s.mul(x, x)
    near = s.fma(s.mul(s.polynomial(q, _TANH), q), x, x)
    # The argument is from 0 to 20, so the result is a normal number.
    n, minus_one = _exp_parts(s, s.add(t, t))
    power = s.mul(s.add(minus_one, s.number(1.0)), s.power_of_two(n))
    far = s.sub(s.number(1.0), s.div(s.number(2.0), s.add(power, s.number(1.0))))
    return s.select(s.compare(OGT, t, s.number(0.625)), s.arithmetic("math.copysign", far, x), near)


def _half_exp(s: Scalars, t: ir.Value) -> ir.Value:
    """Return exp(t) / 2 for t >= 0, which overflows later than exp(t)."""
    n, minus_one = _exp_parts(s, s.clamp(t, 0.0, 90.0))
    return s.scaled(s.add(minus_one, s.number(1.0)), s.make("arith.subi", n, s.bits(1)))


def sinh(s: Scalars, x: ir.Value) -> ir.Value:
    t, square = s.arithmetic("math.absf", x), s.mul(x, x)
    near = s.fma(s.mul(s.polynomial(square, _SINH), square), x, x)
    half = _half_exp(s, t)
    far = s.arithmetic("math.copysign", s.sub(half, s.div(s.number(0.25), half)), x)
    return s.select(s.compare(OGT, t, s.number(1.0)), far, near)


def cosh(s: Scalars, x: ir.Value) -> ir.Value:
    half = _half_exp(s, s.arithmetic("math.absf", x))
    return s.add(half, s.div(s.number(0.25), half))


def _quarters(s: Scalars, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Split x = (n + f) pi / 2, for every f32, with an integer n and f in [-1/2, 1/2].

    Return n modulo 4 as an i32, and f pi / 2. 1 / (2 pi) is stored in parts of 28 bits, so that products with
    x are exact in f64, and so are their fractions of a turn (Payne and Hanek, 1983, in floating point). Whole
    quarters are subtracted from the fractions before these are summed, largest first. So the sum's rounding
    error is relative to the sum itself, however near x is to a multiple of pi / 2.
    """
    wide = s.make("arith.extf", x, type_=s.double)
    products = [s.mul(wide, s.wide(part)) for part in _PARTS_OF_INVERSE_TURN]
    fractions = [s.sub(product, s.arithmetic("math.roundeven", product)) for product in products]
    whole = s.arithmetic("math.roundeven", s.mul(reduce(s.add, fractions), s.wide(4.0)))
    turns = reduce(s.add, fractions[1:], s.fma(whole, s.wide(-0.25), fractions[0]))
    angle = s.make("arith.truncf", s.mul(turns, s.wide(2 * pi)), type_=s.float)
    quarters = s.add(whole, s.wide(ROUNDER_OF_F64))
    bits = s.make("arith.bitcast", quarters, type_=s.of(ir.IntegerType.get_signless(64)))
    return s.make("arith.trunci", bits, type_=s.integer), angle


def _sine(s: Scalars, n: ir.Value, r: ir.Value) -> ir.Value:
    """Return sin(r + n pi / 2) for r in [-pi / 4, pi / 4]."""
    square = s.mul(r, r)
    sin = s.polynomial(square, [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1])
    sin = s.fma(s.mul(sin, square), r, r)
    cos = s.polynomial(square, [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2])
    cos = s.fma(s.mul(cos, square), square, s.fma(square, s.number(-0.5), s.number(1.0)))
    size = s.select(s.is_set(n, 1), cos, sin)
    return s.select(s.is_set(n, 2), s.arithmetic("arith.negf", size), size)


def _few_quarters(s: Scalars, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Do the same for ``|x|`` up to :data:`LARGEST_QUICK_ANGLE`, in f32 (Cody and Waite, 1980).

    The first difference is exact, because both terms are multiples of a bit that is at most 24 places below
    the result.
    """
    n, i = s.rounded(x, 2 / pi)
    for part in _HALF_PI:
        x = s.fma(n, s.number(-part), x)
    return i, x


def sin_of_small(s: Scalars, x: ir.Value) -> ir.Value:
    """Return the sine of ``|x|`` up to :data:`LARGEST_QUICK_ANGLE`."""
    return s.select(s.compare(OEQ, x, s.number(0.0)), x, _sine(s, *_few_quarters(s, x)))


def cos_of_small(s: Scalars, x: ir.Value) -> ir.Value:
    """Return the cosine of ``|x|`` up to :data:`LARGEST_QUICK_ANGLE`."""
    n, r = _few_quarters(s, x)
    return _sine(s, s.make("arith.addi", n, s.bits(1)), r)


def sin(s: Scalars, x: ir.Value) -> ir.Value:
    return s.select(s.compare(OEQ, x, s.number(0.0)), x, _sine(s, *_quarters(s, x)))  # -0 stays -0


def cos(s: Scalars, x: ir.Value) -> ir.Value:
    n, r = _quarters(s, x)
    return _sine(s, s.make("arith.addi", n, s.bits(1)), r)


def _tangent(s: Scalars, n: ir.Value, r: ir.Value) -> ir.Value:
    """Return tan(r + n pi / 2) for r in [-pi / 4, pi / 4]."""
    square = s.mul(r, r)
    near = s.fma(s.mul(s.polynomial(square, _TAN), square), r, r)
    return s.select(s.is_set(n, 1), s.div(s.number(-1.0), near), near)


def tan(s: Scalars, x: ir.Value) -> ir.Value:
    return s.select(s.compare(OEQ, x, s.number(0.0)), x, _tangent(s, *_quarters(s, x)))


def tan_of_small(s: Scalars, x: ir.Value) -> ir.Value:
    """Return the tangent of ``|x|`` up to :data:`LARGEST_QUICK_ANGLE`."""
    return s.select(s.compare(OEQ, x, s.number(0.0)), x, _tangent(s, *_few_quarters(s, x)))


def rsqrt(s: Scalars, x: ir.Value) -> ir.Value:
    return s.div(s.number(1.0), s.arithmetic("math.sqrt", x))
