"""Logarithms of f32 as arithmetic, with the range reduction and the coefficients of Cephes (``logf.c``, S.
Moshier).
"""

from __future__ import annotations

from math import inf

from torch_mlir import ir

from shardc.backends.cpu.lanes.scalars import OEQ, OGT, OLT, ULT, Scalars

_LOG = [
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
]
"""(log(1 + f) - f + f**2 / 2) / f**3."""
_LOG10_E, _LOG10_2, _LOG10_2_REST = 0.4342944819032518, 0.301025390625, 4.605038981195214e-06
"""log10(e), and log10(2) as a number of few bits and the rest."""


def _log_parts(s: Scalars, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Split a positive normal x = 2**e * (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1], into e and f, as f32."""
    i = s.make("arith.bitcast", x, type_=s.integer)
    above = s.make("arith.subi", i, s.bits(0x3F3504F3))
    e = s.make("arith.shrsi", above, s.bits(23))
    mantissa = s.make("arith.subi", i, s.make("arith.shli", e, s.bits(23)))
    f = s.sub(s.make("arith.bitcast", mantissa, type_=s.float), s.number(1.0))
    return s.make("arith.sitofp", e, type_=s.float), f


def _log_of(s: Scalars, e: ir.Value, f: ir.Value) -> ir.Value:
    """Return e ln 2 + log(1 + f)."""
    square = s.mul(f, f)
    tail = s.fma(s.mul(s.polynomial(f, _LOG), square), f, s.mul(e, s.number(-2.12194440e-4)))
    tail = s.fma(square, s.number(-0.5), tail)
    return s.fma(e, s.number(0.693359375), s.add(f, tail))


def _log_edges(s: Scalars, x: ir.Value, zero: float, result: ir.Value) -> ir.Value:
    """Set the logarithm's values at ``zero`` (-inf), below it (NaN), at infinity and at NaN."""
    result = s.select(s.compare(OEQ, x, s.number(inf)), x, result)
    result = s.select(s.compare(OEQ, x, s.number(zero)), s.number(-inf), result)
    bad = s.compare(ULT, x, s.number(zero))
    return s.select(bad, s.number(float("nan")), result)


def wide_log_parts(s: Scalars, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Do the same as :func:`_log_parts`, for subnormals, too."""
    tiny = s.compare(OLT, x, s.number(1.1754943508222875e-38))
    e, f = _log_parts(s, s.select(tiny, s.mul(x, s.number(2.0**25)), x))
    return s.select(tiny, s.sub(e, s.number(25.0)), e), f


def log(s: Scalars, x: ir.Value) -> ir.Value:
    return _log_edges(s, x, 0.0, _log_of(s, *wide_log_parts(s, x)))


def log2(s: Scalars, x: ir.Value) -> ir.Value:
    e, f = wide_log_parts(s, x)
    part = _log_of(s, s.number(0.0), f)
    return _log_edges(s, x, 0.0, s.fma(part, s.number(1.4426950408889634), e))


def log10(s: Scalars, x: ir.Value) -> ir.Value:
    e, f = wide_log_parts(s, x)
    part = s.mul(_log_of(s, s.number(0.0), f), s.number(_LOG10_E))
    return _log_edges(s, x, 0.0, s.fma(e, s.number(_LOG10_2), s.fma(e, s.number(_LOG10_2_REST), part)))


def log1p(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute log(u) + (x - (u - 1)) / u with u = 1 + x. The second term corrects u's rounding (Kahan)."""
    u = s.make("arith.addf", s.number(1.0), x)
    e, f = _log_parts(s, s.select(s.compare(OGT, u, s.number(0.0)), u, s.number(1.0)))
    lost = s.make("arith.subf", x, s.make("arith.subf", u, s.number(1.0)))
    near = s.add(_log_of(s, e, f), s.div(lost, u))
    return _log_edges(s, x, -1.0, s.select(s.compare(OEQ, u, s.number(1.0)), x, near))
