"""Memory layouts of tensors, which the IR does not have: strides, tracked through views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import CallReader, IntValue, fill, is_constant, leaves, target_name
from shardc.dialects.aten.schema import overload
from shardc.dialects.aten.types import Order, read_type
from shardc.dialects.kern.size import AnySize, symbols_of
from shardc.dialects.kern.strides import Strides
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import TURNS, owner_of, turn_of
from shardc.runtime.torch_private import schema_of

RESHAPES = frozenset(("aten.view", "aten._unsafe_view", "aten.reshape"))
_VIEWS = RESHAPES | TURNS | {"aten.squeeze.dim", "aten.unsqueeze", "aten.slice.Tensor"}
"""Views whose strides are tracked; values of other views are left to ATen, which supports every layout."""


class Layouts:
    """Strides of values: given ones for arguments, dense ones for results of calls, PyTorch's for views."""

    def __init__(self, strides: Mapping[ir.Value, Strides], symbols: Symbols) -> None:
        self._strides, self._symbols, self._reader = strides, symbols, CallReader()

    def of(self, value: ir.Value) -> tuple[AnySize, ...] | None:
        """Return the strides of a value; None if they are unknown."""
        type_ = self._symbols.type(value)
        if type_ is None or not type_.is_static:
            return None
        if symbols_of(type_.shape):
            return self._symbolic(value, type_.shape)
        tensor = self._tensor(value)
        return None if tensor is None else tuple(tensor.stride())

    def _symbolic(self, value: ir.Value, shape: Sequence[AnySize]) -> tuple[AnySize, ...] | None:
        """Return the strides of a value with symbolic sizes, through views that are valid for all sizes."""
        plain = tuple(range(len(shape)))
        if value in self._strides:
            known = self._strides[value]
            return _dense(shape, known.dims) if isinstance(known, Order) and known.dims else None
        owner = owner_of(value)
        if owner is None or not _is_view(owner):
            return None if _is_foreign(owner) else _dense(shape, plain)
        call = self._reader.read(owner)
        before, strides = self._symbols.type(call.operands[0]), self.of(call.operands[0])
        if before is None or strides is None:
            return None
        if call.spec.target in RESHAPES:
            if strides == _dense(before.shape, tuple(range(len(before.shape)))):
                return _dense(shape, plain)
            return strides if before.shape == shape else None
        order = turn_of(call.spec, len(shape))
        return None if order is None else tuple(strides[d] for d in order)

    def _tensor(self, value: ir.Value) -> torch.Tensor | None:
        """Return a tensor without memory that has the layout of ``value``."""
        type_ = read_type(value.type)
        if type_ is None or not type_.is_static:
            return None
        if value in self._strides:
            known = self._strides[value]
            if isinstance(known, Order):
                return None
            return torch.empty_strided(type_.shape, known, dtype=type_.dtype, device="meta")
        owner = owner_of(value)
        if _is_foreign(owner):
            return None
        if owner is None or not _is_view(owner):
            return torch.empty(type_.shape, dtype=type_.dtype, device="meta")
        call = self._reader.read(owner)
        has_unknown = any(isinstance(leaf, IntValue) for leaf in leaves(call.spec.args))
        if call.spec.target not in _VIEWS or has_unknown:
            return None
        source = self._tensor(call.operands[0])
        target = "aten.reshape" if call.spec.target in RESHAPES else call.spec.target
        return None if source is None else overload(target)(*fill(call.spec.args, [source]))


def _is_foreign(op: ir.Operation | None) -> bool:
    """Return whether it is a user's operator, whose results may have any layout."""
    return op is not None and op.name == "torch.operator" and not target_name(op).startswith("aten.")


def _dense(shape: Sequence[AnySize], dims: Sequence[int]) -> tuple[AnySize, ...]:
    """Return the strides of a dense tensor; ``dims`` are ordered from the most major."""
    strides = {d: prod(shape[x] for x in dims[at + 1 :]) for at, d in enumerate(dims)}
    return tuple(strides[d] for d in range(len(shape)))


def _is_view(op: ir.Operation) -> bool:
    if not op.name.startswith("torch.") or not target_name(op).startswith("aten.") or is_constant(op):
        return False
    if target_name(op) in RESHAPES:
        return True
    return any(r.alias_info is not None for r in schema_of(overload(target_name(op))).returns)
