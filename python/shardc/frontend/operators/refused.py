"""Operators that a step cannot contain, rejected when called by an error that names a replacement."""

from __future__ import annotations

from functools import partial

import torch

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.frontend import CtcLoss, SizeWithoutBound, SparseGradient
from shardc.frontend.operators import Table
from shardc.runtime.torch_private import OpOverload

aten = torch.ops.aten
_REFUSED: dict[OpOverload, type[ShardcError]] = {
    aten._ctc_loss.Tensor: CtcLoss,
    aten._ctc_loss.default: CtcLoss,
    aten.bincount.default: SizeWithoutBound,
    aten._sparse_coo_tensor_with_dims_and_tensors.default: SparseGradient,
}


def refusal_table() -> Table:
    """Return a decomposition for each such operator, which raises its error without a line."""
    return {op: partial(_refuse, kind, str(op)) for op, kind in _REFUSED.items()}


def _refuse(kind: type[ShardcError], op: str, *args: object, **kwargs: object) -> object:
    raise kind(op=op)
