"""From a function whose body is one ``kern.attention`` or ``kern.attention_backward`` to loops over memory."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.body.signature import config_of, symbols_and_shapes
from shardc.backends.cpu.attention_backward import emit_backward
from shardc.backends.cpu.attention_forward import emit_forward
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emitted import Emitted
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.attention import AttentionOp, attention_of
from shardc.dialects.kern.attention_backward import AttentionBackwardOp, attention_backward_of

NAMES = (AttentionOp.OPERATION_NAME, AttentionBackwardOp.OPERATION_NAME)


def is_attention(function: ir.Operation) -> bool:
    return any(op.operation.name in NAMES for op in function.regions[0].blocks[0].operations)


def emit_attention(function: ir.Operation, module: ir.Module) -> Emitted:
    """Adds the function's loops to ``module``.

    Raises:
        KernelNotSupported: the body holds more than one attention of its arguments, all of whose results it gives.
    """
    block = function.regions[0].blocks[0]
    op, *rest = [o.operation for o in block.operations]
    symbols, shapes = symbols_and_shapes(function)
    tensors = list(block.arguments)[: len(block.arguments) - len(symbols)]
    alone = op.name in NAMES and len(rest) == 1
    if not alone or list(op.operands) != tensors or list(rest[0].operands) != list(op.results):
        raise KernelNotSupported(what="an attention that shares a kernel with other ops")
    name = ir.StringAttr(function.attributes["sym_name"]).value
    if op.name == AttentionOp.OPERATION_NAME:
        return emit_forward(name, attention_of(op, shapes), symbols, Config.of(config_of(function)), module)
    return emit_backward(
        name, attention_backward_of(op, shapes), symbols, Config.of(config_of(function)), module
    )
