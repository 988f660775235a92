"""Activation memory that a stage keeps for a micro-batch, as attributes of the stage's forward.

The attributes are ``pipe.recompute``, ``pipe.kept_bytes`` and, for the bytes without recomputation,
``pipe.kept_bytes_before``.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch_mlir import ir

from shardc.dialects.dist.build import i64, string
from shardc.dialects.pipe.stage import StageOp

RECOMPUTE, KEPT, BEFORE = "pipe.recompute", "pipe.kept_bytes", "pipe.kept_bytes_before"

MODULES = "modules"
"""What is recomputed if a program's modules are, rather than its stages."""


class Kept(NamedTuple):
    """Memory that a stage keeps for one micro-batch from forward to backward.

    ``recompute`` is ``none``, :data:`MODULES`, or the policy of a whole stage. ``size_bytes`` are kept;
    ``before_bytes`` would be kept without recomputation.
    """

    recompute: str
    size_bytes: int
    before_bytes: int


def note_kept(module: ir.Module, kept: Sequence[Kept]) -> None:
    """Write what each stage of a pipeline keeps to its forward."""
    for op in _forwards(module):
        found = kept[op.attributes["index"].value]
        op.attributes[RECOMPUTE] = string(found.recompute, op.context)
        op.attributes[KEPT] = i64(found.size_bytes, op.context)
        op.attributes[BEFORE] = i64(found.before_bytes, op.context)


def read_kept(module: ir.Module) -> list[Kept]:
    """Return what each stage keeps, in order of stages; empty if the module does not say."""
    noted = [op.attributes for op in _forwards(module) if RECOMPUTE in op.attributes]
    found = {a["index"].value: Kept(a[RECOMPUTE].value, a[KEPT].value, a[BEFORE].value) for a in noted}
    return [found[index] for index in sorted(found)]


def _forwards(module: ir.Module) -> Iterator[ir.Operation]:
    for op in (view.operation for view in module.body.operations):
        if op.name == StageOp.OPERATION_NAME and op.attributes["kind"].value == "F":
            yield op
