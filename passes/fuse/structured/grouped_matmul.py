"""Kernels of ``aten._grouped_mm``: matrix products of groups whose sizes are computed, as for experts.

Transposed operands are read from their source. Calls that ``kern.grouped_matmul`` cannot express stay calls.
"""

from __future__ import annotations

from math import prod

from torch_mlir import ir

from shardc.dialects.aten.call import CallReader
from shardc.dialects.dist.build import At
from shardc.dialects.kern.attention_maps import FLOATS
from shardc.dialects.kern.grouped_matmul import SHAPES, grouped_matmul
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import turned, type_of
from shardc.passes.fuse.structured.write_kernel import write_kernel

GROUPED = "aten._grouped_mm"


class GroupedMatmulKernels:
    """Conversion of a block's grouped matmuls into kernels."""

    def __init__(self, symbols: Symbols) -> None:
        self._reader, self._symbols = CallReader(), symbols

    def flops(self, op: ir.Operation) -> int:
        """Return the FLOPs of a call if all rows have a group; 0 if no kernel computes the call."""
        call = self._reader.read(op)
        left, right, ends, (out,) = call.spec["self"], call.spec["mat2"], call.spec["offs"], call.spec.results
        if ends is None or call.spec["bias"] is not None or out is None:
            return 0
        is_static = all(t.is_static and 0 not in t.shape for t in (left, right, ends, out))
        if not is_static or left.dtype not in FLOATS:
            return 0
        if right.dtype != left.dtype or out.dtype != left.dtype:
            return 0
        *_, shared = SHAPES[len(left.shape), len(right.shape)]
        terms = left.shape[-1]
        return 2 * terms * (left.shape[0] * right.shape[1] if shared == "k" else prod(out.shape))

    def write(self, op: ir.Operation, name: str) -> tuple[ir.Operation, ir.Value]:
        """Write a kernel for ``op``, a call with nonzero :meth:`flops`; return it and its result.

        The call stays.
        """
        call = self._reader.read(op)
        at = At(loc=op.location, ip=ir.InsertionPoint(op))
        *matrices, ends = call.operands
        (left, left_turned), (right, right_turned) = map(self._as_it_lies, matrices)
        roles = [role for role, is_turned in (("left", left_turned), ("right", right_turned)) if is_turned]
        out = self._symbols.known_type(op.results[0])
        read = [left, right, ends]
        given, values, made, inside = write_kernel(name, read, [out], self._symbols, **at)
        product = grouped_matmul(given, builtin_type(out, op.context), roles, **inside)
        yield_values([product], **inside)
        return made, values[0]

    def _as_it_lies(self, value: ir.Value) -> tuple[ir.Value, bool]:
        """Return the source of an operand's views, and whether the source has the last two dims swapped."""
        is_turned, rank = False, len(type_of(value).shape)
        last_two = [*range(rank - 2), rank - 1, rank - 2]
        while (source := turned(value, self._reader)) is not None and source[1] == last_two:
            value, is_turned = source[0], not is_turned
        return value, is_turned
