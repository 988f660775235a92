"""The two forms of a log_softmax of rows: one call, and the parts that ``torch-split-softmax`` writes where devices
have a part of the classes each.

The parts are ``shifted = x - top``, ``shifted - log(total)``, with ``top`` and ``total`` combined over the devices of
``amax(x)`` and ``sum(exp(shifted))``. Whatever these two are combined to, one class of the result is
``logp + (lse - top - log(total))``, with logp and lse of a device's own classes; its kernel needs to know nothing else.
"""

from __future__ import annotations

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import CallReader, IntValue, leaves
from shardc.passes.fuse.linear_loss.calls import readers, target_of, type_of
from shardc.passes.fuse.linear_loss.loss import LogSoftmax, Parts, Refused

SOFTMAX, LARGEST = "aten._log_softmax", "aten.amax"
SUM = "aten.sum.dim_IntList"


def log_softmax(op: ir.Operation, read: CallReader) -> LogSoftmax | None:
    """The log_softmax that ``op`` is, or the first part of; None for any other op.

    Raises:
        Refused: it is none of rows in f32, or its parts are read by others.
    """
    target = target_of(op)
    if target not in (SOFTMAX, LARGEST):
        return None
    spec = read.read(op).spec
    if any(isinstance(leaf, IntValue) for leaf in leaves(spec.args)):
        return None
    if target == LARGEST:
        return _in_parts(op, read)
    (made,) = spec.results
    if made is None or len(made.shape) != 2 or spec["dim"] % 2 != 1 or made.dtype != torch.float32:
        raise Refused("the softmax is not of rows, in f32")
    return LogSoftmax(op.operands[0], (op,))


def _in_parts(top: ir.Operation, read: CallReader) -> LogSoftmax | None:
    logits = top.operands[0]
    shifted = next((op for op in readers(logits) if _is_shifted(op, logits)), None)
    raised = (
        None
        if shifted is None
        else next((op for op in readers(shifted.results[0]) if target_of(op) == "aten.exp"), None)
    )
    if shifted is None or raised is None:
        return None
    others = [op for op in readers(shifted.results[0]) if op != raised]
    totals = readers(raised.results[0])
    is_parts = is_sum(top, read, keepdim=True) and len(totals) == 1 and is_sum(totals[0], read, keepdim=True)
    if not is_parts or len(others) != 1 or not _is_shifted(others[0], shifted.results[0]):
        raise Refused("the parts of the softmax are read by others, too")
    if type_of(logits).dtype != torch.float32:
        raise Refused("the softmax is not of rows, in f32")
    (total,), (last,) = totals, others
    return LogSoftmax(logits, (top, shifted, raised, total, last), Parts(top, shifted, total))


def is_sum(op: ir.Operation, read: CallReader, *, keepdim: bool) -> bool:
    """Whether ``op`` adds up each row of a matrix, as it is, or takes its largest element."""
    if target_of(op) not in (SUM, LARGEST):
        return False
    spec = read.read(op).spec
    (made,) = spec.results
    is_rows = len(spec["self"].shape) == 2 and tuple(dim % 2 for dim in spec["dim"]) == (1,)
    return is_rows and spec["keepdim"] == keepdim and made is not None and made.dtype == spec["self"].dtype


def _is_shifted(op: ir.Operation, value: ir.Value) -> bool:
    """Whether ``op`` takes one number a row from ``value``."""
    if target_of(op) != "aten.sub.Tensor" or op.operands[0] != value or op.operands[1] == value:
        return False
    spec = CallReader().read(op).spec
    return (
        spec["alpha"] == 1
        and spec["other"].shape == (spec["self"].shape[0], 1)
        and spec["other"].dtype == spec["self"].dtype
    )
