"""Expansion of exp, log, sin, erf, tanh and others to arithmetic that LLVM can vectorize, instead of libm
calls.

f32 is expanded, f16 and bf16 are computed in f32, and f64 is left to libm. Sources: the range reductions of
exp and log, and the coefficients of log, sin and cos, are from Cephes (``expf.c``, ``logf.c``, ``sinf.c``; S.
Moshier). erf uses the minimax polynomials of N. Juffa (StackOverflow 35148198). The coefficients of exp and
tanh are least-squares fits of the relative error, reweighted until it is even.
``test/unit/backends/cpu/test_polynomials.py`` asserts the errors, in ulp against f64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from math import inf, ldexp, pi

from torch_mlir import ir

from shardc.backends.cpu.lanes.scalars import OEQ, OGT, OLT, ULT, Expansion, Scalars
from shardc.backends.cpu.lanes.tables import LANES, TABLED

_LOG2_E = 1.44269504088896341
_ROUNDER_OF_F64 = 1.5 * 2.0**52
_INVERSE_TURN, _INVERSE_TURN_BITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041F, 198
"""1 / (2 pi) * 2**198, whose first two bits are 0."""
_PART_BITS = 28
_PARTS_OF_INVERSE_TURN = [
    ldexp(_INVERSE_TURN >> (_INVERSE_TURN_BITS - end) & ((1 << _PART_BITS) - 1), -end)
    for end in range(2 + _PART_BITS, _INVERSE_TURN_BITS + 1, _PART_BITS)
]

_LOG = [
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
]
"""(log(1 + f) - f + f**2 / 2) / f**3."""
_EXP = [1.3814534759e-3, 8.3687454462e-3, 4.1668392718e-2, 1.6666521132e-1, 4.9999994040e-1]
"""(exp(r) - 1 - r) / r**2 for |r| up to ln(2) / 2: exp(r) to 3.1e-9."""
_TANH = [-5.716541176e-3, 2.064899369e-2, -5.374260882e-2, 1.333147502e-1, -3.333328308e-1]
"""(tanh(x) - x) / x**3 in powers of x**2 for |x| up to 0.625: tanh(x) to 4.3e-9."""


def _exp_of(s: Scalars, r: ir.Value) -> ir.Value:
    """Return exp(r) - 1."""
    return s.fma(s.polynomial(r, _EXP), s.mul(r, r), r)


def _exp_parts(s: Scalars, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Split x = n ln 2 + r with an integer n; return n as an i32, and exp(r) - 1."""
    n, i = s.rounded(x, _LOG2_E)
    r = s.fma(n, s.number(-0.693145751953125), x)
    r = s.fma(n, s.number(-1.428606765330187e-06), r)
    return i, _exp_of(s, r)


def _exp(s: Scalars, x: ir.Value) -> ir.Value:
    n, minus_one = _exp_parts(s, s.clamp(x, -104.0, 88.8))
    return s.scaled(s.add(minus_one, s.number(1.0)), n)


def _exp2(s: Scalars, x: ir.Value) -> ir.Value:
    x = s.clamp(x, -151.0, 128.5)
    n, i = s.rounded(x)
    r = s.mul(s.sub(x, n), s.number(0.6931471805599453))
    return s.scaled(s.add(_exp_of(s, r), s.number(1.0)), i)


def _expm1(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute 2**n (exp(r) - 1) + (2**n - 1). Nothing cancels, because n is 0 for small results."""
    inside = s.clamp(x, -17.5, 88.0)
    n, minus_one = _exp_parts(s, inside)
    scale = s.power_of_two(n)
    small = s.fma(scale, minus_one, s.sub(scale, s.number(1.0)))
    large = s.compare(OGT, x, s.number(88.0))
    return s.select(large, _exp(s, x), small)


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


def _wide_log_parts(s: Scalars, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Do the same as :func:`_log_parts`, for subnormals, too."""
    tiny = s.compare(OLT, x, s.number(1.1754943508222875e-38))
    e, f = _log_parts(s, s.select(tiny, s.mul(x, s.number(2.0**25)), x))
    return s.select(tiny, s.sub(e, s.number(25.0)), e), f


def _log(s: Scalars, x: ir.Value) -> ir.Value:
    return _log_edges(s, x, 0.0, _log_of(s, *_wide_log_parts(s, x)))


def _log2(s: Scalars, x: ir.Value) -> ir.Value:
    e, f = _wide_log_parts(s, x)
    part = _log_of(s, s.number(0.0), f)
    return _log_edges(s, x, 0.0, s.fma(part, s.number(1.4426950408889634), e))


def _log1p(s: Scalars, x: ir.Value) -> ir.Value:
    """Compute log(u) + (x - (u - 1)) / u with u = 1 + x. The second term corrects u's rounding (Kahan)."""
    u = s.make("arith.addf", s.number(1.0), x)
    e, f = _log_parts(s, s.select(s.compare(OGT, u, s.number(0.0)), u, s.number(1.0)))
    lost = s.make("arith.subf", x, s.make("arith.subf", u, s.number(1.0)))
    near = s.add(_log_of(s, e, f), s.div(lost, u))
    return _log_edges(s, x, -1.0, s.select(s.compare(OEQ, u, s.number(1.0)), x, near))


def _erf(s: Scalars, x: ir.Value) -> ir.Value:
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


def _tanh(s: Scalars, x: ir.Value) -> ir.Value:
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
    quarters = s.add(whole, s.wide(_ROUNDER_OF_F64))
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


def _sin(s: Scalars, x: ir.Value) -> ir.Value:
    return s.select(s.compare(OEQ, x, s.number(0.0)), x, _sine(s, *_quarters(s, x)))  # -0 stays -0


def _cos(s: Scalars, x: ir.Value) -> ir.Value:
    n, r = _quarters(s, x)
    return _sine(s, s.make("arith.addi", n, s.bits(1)), r)


def _rsqrt(s: Scalars, x: ir.Value) -> ir.Value:
    return s.div(s.number(1.0), s.arithmetic("math.sqrt", x))


EXPANSIONS: dict[str, Expansion] = {
    "math.exp": _exp,
    "math.exp2": _exp2,
    "math.expm1": _expm1,
    "math.log": _log,
    "math.log2": _log2,
    "math.log1p": _log1p,
    "math.erf": _erf,
    "math.tanh": _tanh,
    "math.rsqrt": _rsqrt,
    "math.sin": _sin,
    "math.cos": _cos,
}


CALLED = {"math.expm1": "expm1", "math.log1p": "log1p"}
"""Functions of f64 that become calls of libm. MLIR would lower them to exp(x) - 1 and log(1 + x), which are 0
for |x| below 1e-16."""


def expand_math(module: ir.Module, scales: bool, tables: bool) -> None:
    """Replace the functions of :data:`EXPANSIONS` in ``module``, for scalars and vectors.

    f32 is expanded directly, and f16 and bf16 through f32; f64 stays, except for :data:`CALLED`. ``scales``:
    True if the target scales vectors by powers of two with one instruction (AVX-512's ``vscalefps``).
    ``tables``: True if it has the instructions of :mod:`shardc.backends.cpu.lanes.tables`.
    """
    with module.context, ir.Location.unknown():
        called = set()
        for op in list(walk(module.operation)):
            if is_expanded(op):
                with ir.InsertionPoint(op):
                    made = _expanded(Scalars(shape_of(op.results[0].type), scales), op, tables)
            elif op.name in CALLED:
                called.add(CALLED[op.name])
                with ir.InsertionPoint(op):
                    made = _call(op)
            else:
                continue
            op.results[0].replace_all_uses_with(made)
            op.erase()
        start = ir.InsertionPoint.at_block_begin(module.body)
        for name in sorted(called):
            text = f"func.func private @{name}(f64) -> f64 attributes {{llvm.readnone}}"
            start.insert(ir.Operation.parse(text))


def is_expanded(op: ir.Operation) -> bool:
    """Return True if ``op`` is replaced by arithmetic."""
    return op.name in EXPANSIONS and isinstance(
        _scalar(op.results[0].type), ir.F32Type | ir.F16Type | ir.BF16Type
    )


def _call(op: ir.Operation) -> ir.Value:
    """Call the function of libm for the number, or for each lane of the vector, that ``op`` takes."""
    type_, attributes = op.results[0].type, {"callee": ir.FlatSymbolRefAttr.get(CALLED[op.name])}
    scalar = _scalar(type_)
    shape = shape_of(type_)
    if shape is None:
        return ir.Operation.create("func.call", [scalar], list(op.operands), attributes).result
    made = op.operands[0]
    for lane in product(*map(range, shape)):
        place = {"static_position": ir.DenseI64ArrayAttr.get(lane)}
        number = ir.Operation.create("vector.extract", [scalar], [op.operands[0]], place).result
        number = ir.Operation.create("func.call", [scalar], [number], attributes).result
        made = ir.Operation.create("vector.insert", [type_], [number, made], place).result
    return made


def shape_of(type_: ir.Type) -> list[int] | None:
    """Return the shape of a vector type, and None for a scalar type."""
    return list(ir.VectorType(type_).shape) if isinstance(type_, ir.VectorType) else None


def _scalar(type_: ir.Type) -> ir.Type:
    return ir.VectorType(type_).element_type if isinstance(type_, ir.VectorType) else type_


def _expanded(scalars: Scalars, op: ir.Operation, tables: bool) -> ir.Value:
    expansion = EXPANSIONS[op.name]
    if tables and scalars.shape == [LANES]:
        expansion = TABLED.get(op.name, expansion)
    type_ = op.results[0].type
    if type_ == scalars.float:
        return expansion(scalars, op.operands[0])
    wide = scalars.make("arith.extf", op.operands[0], type_=scalars.float)
    return scalars.make("arith.truncf", expansion(scalars, wide), type_=type_)


def walk(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield all ops inside of ``op``, outer ones first."""
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation
                yield from walk(view.operation)
