"""Kernels of ``shardc.convolution_direct``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.aten.call import CallReader, OpCall
from shardc.dialects.dist.build import At
from shardc.dialects.kern.convolution import Convolution, convolution
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.structured.write_kernel import write_kernel

KERNEL = "shardc.convolution_direct"
"""Operator whose calls become kernels."""


class ConvolutionKernels:
    """Conversion of a block's direct convolutions into kernels."""

    def __init__(self, symbols: Symbols) -> None:
        self._reader, self._symbols = CallReader(), symbols

    def write(self, op: ir.Operation, name: str) -> tuple[ir.Operation, ir.Value]:
        """Write a kernel for the call ``op``; return it and its result. The call stays."""
        call = self._reader.read(op)
        at = At(loc=op.location, ip=ir.InsertionPoint(op))
        out = self._symbols.known_type(op.results[0])
        given, values, made, inside = write_kernel(name, call.operands, [out], self._symbols, **at)
        result = write_convolution(call.spec, given, builtin_type(out, op.context), **inside)
        yield_values([result], **inside)
        return made, values[0]


def write_convolution(call: OpCall, operands: Sequence[ir.Value], out: ir.Type, **at: Unpack[At]) -> ir.Value:
    """Write the ``kern.convolution`` that computes ``call``. Return its result."""
    spec = spec_of(call)
    settings = (spec.stride, spec.padding, spec.dilation, spec.groups)
    return convolution(operands, out, *settings, transposed=spec.transposed, **at)


def spec_of(call: OpCall) -> Convolution:
    """Return the convolution that a call of known sizes computes."""
    rank = len(call["input"].shape) - 2
    numbers = (tuple(call[name]) for name in ("stride", "padding", "dilation"))
    stride, padding, dilation = (n * rank if len(n) == 1 else n for n in numbers)
    settings = (stride, padding, dilation, call["transposed"], call["groups"])
    return Convolution(call["input"], call["weight"], call.result, call["bias"] is not None, *settings)
