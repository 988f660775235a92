"""Rounding of f32 to bf16 as arithmetic of 32-bit integers, which LLVM can vectorize.

MLIR's own expansion (``arith-expand{include-bf16}``) selects among 16-bit results. LLVM turns that into a
select of bf16, and splits it into lanes on targets without vectors of bf16. A conversion then took three
times as long as PyTorch's.
"""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.cpu.lanes.expand import shape_of
from shardc.backends.cpu.lanes.scalars import UNO, Scalars
from shardc.dialects.inner_ops import inner_ops


def expand_rounding(module: ir.Module) -> None:
    """Replace each ``arith.truncf`` from f32 to bf16 in ``module``, for scalars and vectors."""
    with module.context, ir.Location.unknown():
        for op in list(inner_ops(module.operation)):
            if op.name == "arith.truncf":
                scalars = Scalars(shape_of(op.results[0].type), scales=False)
                types = op.operands[0].type, op.results[0].type
                if types == (scalars.float, scalars.of(ir.BF16Type.get())):
                    with ir.InsertionPoint(op):
                        made = _rounded(scalars, op.operands[0])
                    op.results[0].replace_all_uses_with(made)
                    op.erase()


def _rounded(s: Scalars, x: ir.Value) -> ir.Value:
    """Round to nearest, ties to even; NaN becomes a quiet NaN of the same sign."""
    bits = s.make("arith.bitcast", x, type_=s.integer)
    odd = s.make("arith.andi", s.make("arith.shrui", bits, s.bits(16)), s.bits(1))
    nearest = s.make("arith.addi", bits, s.make("arith.addi", odd, s.bits(0x7FFF)))
    quiet = s.make("arith.ori", bits, s.bits(0x400000))
    chosen = s.select(s.compare(UNO, x, x), quiet, nearest)
    short = s.of(ir.IntegerType.get_signless(16))
    high = s.make("arith.trunci", s.make("arith.shrui", chosen, s.bits(16)), type_=short)
    return s.make("arith.bitcast", high, type_=s.of(ir.BF16Type.get()))
