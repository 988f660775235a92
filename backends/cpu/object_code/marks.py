"""Attributes by which loops control their lowering, and copies of ops.

It does not import torch, because the process that generates machine code loads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.diagnostics.kernels import KernelNotSupported

REASSOCIATE = "#arith.fastmath<reassoc>"  # on the op that adds to a sum, so that it may run in vector lanes
LOOP = "llvm.loop_annotation"
VECTORS = "#llvm.loop_annotation<unroll = <disable = true>, interleave = <count = 1 : i32>>"
"""Annotation of a short loop, which LLVM would unroll before it makes vectors of it."""
LONG_LOOP = 64
"""Least number of steps of a loop that LLVM does not unroll before."""
SHORT_LOOP = 4
"""Least number of steps of a loop without sums in registers that LLVM does not unroll before it makes vectors
of it. Unrolled, the gradient of a group norm's weights in groups of 16 took 21 times as long, a difference of
rows of 15 three times."""


def copied(
    op: ir.Operation, operands: Sequence[ir.Value], results: Sequence[ir.Type] | None = None
) -> ir.Operation:
    """Copy an op with new ``operands``, its attributes (and fast-math flags), and types or ``results``."""
    if len(op.regions):
        raise KernelNotSupported(what=f"{op.name} in a body")
    attributes = {name: op.attributes[name] for name in op.attributes}
    types = [r.type for r in op.results] if results is None else list(results)
    return ir.Operation.create(op.name, results=types, operands=list(operands), attributes=attributes)
