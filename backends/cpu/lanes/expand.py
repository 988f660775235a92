"""Replacement of math functions by arithmetic that LLVM can vectorize, instead of libm calls."""

from __future__ import annotations

from itertools import product

from torch_mlir import ir

from shardc.backends.cpu.lanes import inverse, logarithm, polynomials, power, remainder
from shardc.backends.cpu.lanes.scalars import Expansion, Scalars
from shardc.backends.cpu.lanes.tables import LANES, TABLED
from shardc.dialects.inner_ops import inner_ops
from shardc.dialects.steady import STEADY

_INVERSES = ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh")
EXPANSIONS: dict[str, Expansion] = {
    "math.exp": polynomials.exp,
    "math.exp2": polynomials.exp2,
    "math.expm1": polynomials.expm1,
    "math.log": logarithm.log,
    "math.log2": logarithm.log2,
    "math.log1p": logarithm.log1p,
    "math.erf": polynomials.erf,
    "math.tanh": polynomials.tanh,
    "math.rsqrt": polynomials.rsqrt,
    "math.sin": polynomials.sin,
    "math.cos": polynomials.cos,
    "math.tan": polynomials.tan,
    "math.sinh": polynomials.sinh,
    "math.cosh": polynomials.cosh,
    "math.log10": logarithm.log10,
    **{f"math.{name}": getattr(inverse, name) for name in _INVERSES},
    "math.powf": power.power,
    "arith.remf": remainder.fmod,
}

OF_SMALL: dict[str, Expansion] = {
    "math.sin": polynomials.sin_of_small,
    "math.cos": polynomials.cos_of_small,
    "math.tan": polynomials.tan_of_small,
}
"""Replacements of :data:`EXPANSIONS` for ops with the attribute :data:`SMALL`."""
SMALL = "kern.small"
"""Attribute of an op of :data:`OF_SMALL` whose argument is at most ``LARGEST_QUICK_ANGLE``."""

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
        for op in list(inner_ops(module.operation)):
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
    expansion = (OF_SMALL if SMALL in op.attributes else EXPANSIONS)[op.name]
    if tables and scalars.shape == [LANES] and STEADY not in op.attributes:
        expansion = TABLED.get(op.name, expansion)
    type_ = op.results[0].type
    if type_ == scalars.float:
        return expansion(scalars, *op.operands)
    wide = [scalars.make("arith.extf", operand, type_=scalars.float) for operand in op.operands]
    return scalars.make("arith.truncf", expansion(scalars, *wide), type_=type_)
