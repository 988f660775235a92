"""From a ``kern.attention`` or ``kern.attention_backward`` to loops over memory."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.body.structured import Structured
from shardc.backends.cpu.attention.backward import emit_backward
from shardc.backends.cpu.attention.forward import emit_forward
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.emitted import Emitted
from shardc.dialects.kern.attention import AttentionOp, attention_of
from shardc.dialects.kern.attention_backward import attention_backward_of


def emit_attention(body: Structured, module: ir.Module) -> Emitted:
    """Adds the loops of an attention, or of its backward, to ``module``."""
    op, config = body.op, Config.of(body.config)
    if op.name == AttentionOp.OPERATION_NAME:
        return emit_forward(body.name, attention_of(op, body.shapes), body.symbols, config, module)
    return emit_backward(body.name, attention_backward_of(op, body.shapes), body.symbols, config, module)
