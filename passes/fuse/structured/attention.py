"""Kernels of attention, forward and backward: ``shardc.attention`` and ATen's fused CPU kernel.

Transposes of operands become index maps. Results have the memory order ``[batch, row, head, size]``, as in
ATen's CPU kernel, so that the usual transposes around attention cost nothing. Results that another kernel
reads keep their order, and so does the lse of ``shardc.attention``, which models do not see. Calls that the
CPU kernels do not cover stay calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod, sqrt

import torch
from torch_mlir import ir

from shardc.cost.work import attention_flops
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import Call, CallReader, IntValue, target_name
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import Order, TensorType
from shardc.dialects.kern.attention_maps import (
    FLOATS,
    KEYS,
    PARTS,
    ROLES,
    likely_place,
    map_of,
    write_attention,
)
from shardc.dialects.kern.kernel import KernelOp
from shardc.dialects.kern.size import AnySize, Size, hint, symbols_of
from shardc.dialects.kern.strides import Strides
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import is_packed_for, owner_of, target_of, turned
from shardc.passes.fuse.structured.write_kernel import write_kernel
from shardc.passes.manager.attributes import attributes_of

LANES, FILLED = 16, 0.625
"""ATen is faster if queries fill less than this fraction of vectors with so many lanes (8, 17; AVX-512)."""

_ROLES = {"query": "q", "key": "k", "value": "v", "attn_mask": "mask", "logsumexp": "lse"}
"""Role of each of ATen's arguments."""
_FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"
OF_LIBRARIES = frozenset(("shardc.attention", "shardc.attention_backward"))
"""Calls that several libraries compute: ``shardc.runtime.operators.attention.LIBRARIES``."""
ATTENTION = OF_LIBRARIES | {_FLASH, f"{_FLASH}_backward"}


def call_library(op: ir.Operation, library: str) -> None:
    """Choose one of ``shardc.runtime.operators.attention``'s libraries for a call of attention."""
    op.attributes["name"] = ir.StringAttr.get(f"torch.{target_name(op)}.{library}", op.context)


@dataclass(frozen=True)
class _Operand:
    """Tensor with the names of its dims in memory order. None is a dim of size 1 that is read at 0."""

    value: ir.Value
    dims: tuple[str | None, ...]


class AttentionKernels:
    """Conversion of a block's attention calls into kernels; ``symbols`` has the block's symbolic sizes.

    ``strides`` are those of arguments that are not contiguous. ``places``: Whether kernels may take the
    offset of a rank's rows as an integer.
    """

    def __init__(
        self, block: ir.Block, strides: Mapping[ir.Value, Strides], symbols: Symbols, places: bool
    ) -> None:
        self._places = places
        self._reader, self._builder, self._context = CallReader(), CallBuilder(block), block.owner.context
        self._strides, self._symbols, self._type = strides, symbols, symbols.known_type

    def flops(self, op: ir.Operation) -> int:
        """Return the FLOPs of a call's matmuls at the first sizes; 0 if no CPU kernel computes the call."""
        call = self._reader.read(op)
        types = {role: self._type(value) for role, value in _tensors(call).items()}
        if not self._covers(call, types):
            return 0
        queries, keys = hint(prod(types["q"].shape)), hint(types["k"].shape[2])
        return attention_flops(queries, keys, "grad_out" in types)

    def is_faster(self, op: ir.Operation) -> bool:
        """Return whether a kernel is probably faster than ATen; nothing is measured."""
        rows = hint(self._type(_tensors(self._reader.read(op))["q"]).shape[2])
        return rows >= FILLED * LANES * -(-rows // LANES)

    def write(self, op: ir.Operation, name: str) -> ir.Operation:
        """Replace ``op``, a call with nonzero :meth:`flops`, by a kernel, and return the kernel."""
        call = self._reader.read(op)
        tensors = _tensors(call)
        kind = "kern.attention_backward" if "grad_out" in tensors else "kern.attention"
        given, made = (*PARTS[kind][0], *["mask"][: "mask" in tensors]), PARTS[kind][1]
        loc, ip = op.location, ir.InsertionPoint(op)
        operands = [self._operand(role, tensors[role], loc, ip) for role in given]
        orders = [self._order_of(call, role, value) for role, value in zip(made, call.results, strict=True)]
        dims = [operand.dims for operand in operands]
        dims += [tuple(ROLES[r][d] for d in order) for r, order in zip(made, orders, strict=True)]
        group = self._type(tensors["q"]).shape[1] // self._type(tensors["k"]).shape[1]
        groups = [group if role in KEYS else 1 for role in (*given, *made)]
        maps = [map_of(d, g, self._context) for d, g in zip(dims, groups, strict=True)]
        laid_out = [_permuted(self._type(v), order) for v, order in zip(call.results, orders, strict=True)]
        read = [operand.value for operand in operands]
        numbers = self._numbers(call, tensors)
        inner, values, kernel_op, inside = write_kernel(
            name, read, laid_out, self._symbols, numbers, loc=loc, ip=ip
        )
        results = [builtin_type(t, loc.context) for t in laid_out]
        found = write_attention(kind, inner, results, maps, *_settings(call), **inside)
        yield_values(found, **inside)
        for old, value, order in zip(call.results, values, orders, strict=True):
            as_is = order == sorted(order)
            old.replace_all_uses_with(value if as_is else self._in_order(value, self._type(old), op, ip))
        op.erase()
        return kernel_op

    def _numbers(self, call: Call, tensors: Mapping[str, ir.Value]) -> dict[ir.Value, int]:
        """Return the offset of a rank's rows with its likely value; empty if the offset is a constant."""
        if not (call.spec.target.startswith("shardc.") and isinstance(call.spec["q_offset"], IntValue)):
            return {}
        rows, columns = (hint(self._type(tensors[role]).shape[2]) for role in "qk")
        return {call.operands[-1]: likely_place(rows, columns)}

    def _order_of(self, call: Call, role: str, value: ir.Value) -> list[int]:
        """Return the dims of a result, most major first."""
        # a kernel that reads a view of the result has that view's index map
        is_hidden = role == "lse" and call.spec.target.startswith("shardc.")
        order = list(range(len(ROLES[role])))
        is_kept = is_hidden or is_packed_for(value, KernelOp.OPERATION_NAME)
        return order if is_kept else [0, 2, 1, *order[3:]]

    def _covers(self, call: Call, types: Mapping[str, TensorType]) -> bool:
        """Return whether the CPU kernels compute this call."""
        q, k, v, mask = (types.get(role) for role in ("q", "k", "v", "mask"))
        assert q is not None and k is not None and v is not None
        if call.spec.target.startswith("shardc."):
            if isinstance(call.spec["q_offset"], IntValue) and not self._takes_place(types):
                return False
        elif call.spec["dropout_p"] != 0:
            return False
        made = [t for value in call.results if (t := self._symbols.type(value)) is not None]
        every = (*types.values(), *made)
        if len(made) < len(call.results) or any(not t.is_static or 0 in t.shape for t in every):
            return False
        dtypes = {t.dtype for role, t in types.items() if role not in ("lse", "mask")}
        if q.dtype not in FLOATS or len(dtypes) > 1:
            return False
        if mask is not None and (len(mask.shape) > 4 or mask.dtype not in (*FLOATS, torch.bool)):
            return False
        symbols = symbols_of(n for t in every for n in t.shape)
        return _fits(types) and all(self._symbols.has(symbol, types.values()) for symbol in symbols)

    def _takes_place(self, types: Mapping[str, TensorType]) -> bool:
        """Return whether kernels on these tensors may take the offset of a rank's rows at run time."""
        every = [n for type_ in types.values() for n in type_.shape]
        return self._places and "mask" not in types and not symbols_of(every)

    def _operand(self, role: str, value: ir.Value, loc: ir.Location, ip: ir.InsertionPoint) -> _Operand:
        shape = self._type(value).shape
        dims = ROLES[role][-len(shape) :]
        spread = [role == "mask" and n == 1 for n in shape]
        operand = _Operand(value, tuple(None if same else d for d, same in zip(dims, spread, strict=True)))
        while (source := self._source(operand, role)) is not None:
            operand = source
        return self._contiguous(operand, loc, ip)

    def _source(self, operand: _Operand, role: str) -> _Operand | None:
        """Return the source of a transpose, of a view of the same type, or of an expanded mask; else None."""
        if (turn := turned(operand.value, self._reader)) is not None:
            source, order = turn
            return _Operand(source, tuple(operand.dims[order.index(d)] for d in range(len(order))))
        owner = owner_of(operand.value)
        target = None if owner is None else target_of(owner)
        if owner is None or target not in ("aten.view", "aten.expand"):
            return None
        source = owner.operands[0]
        shape = self._type(source).shape
        if target == "aten.view":
            return _Operand(source, operand.dims) if self._type(source) == self._type(operand.value) else None
        if role != "mask" or len(shape) != len(operand.dims):
            return None
        seen = zip(operand.dims, shape, strict=True)
        return _Operand(source, tuple(None if n == 1 else d for d, n in seen))

    def _contiguous(self, operand: _Operand, loc: ir.Location, ip: ir.InsertionPoint) -> _Operand:
        """Permute an argument whose dims are contiguous in another order to that order."""
        strides, shape = self._strides.get(operand.value), self._type(operand.value).shape
        order = None if strides is None else _order(strides, shape)
        if order is None:
            return operand
        type_ = _permuted(self._type(operand.value), order)
        permuted = self._builder.call("aten.permute", (operand.value, order), [type_], loc, ip)
        self._symbols.note(permuted, [type_])
        return _Operand(permuted.results[0], tuple(operand.dims[d] for d in order))

    def _in_order(
        self, value: ir.Value, type_: TensorType, op: ir.Operation, ip: ir.InsertionPoint
    ) -> ir.Value:
        """Return a result in the call's order of dims."""
        phase = attributes_of(op, "dist.phase")
        made = self._builder.call("aten.transpose.int", (value, 1, 2), [type_], op.location, ip, phase)
        self._symbols.note(made, [type_])
        return made.results[0]


def _order(strides: Strides, shape: Sequence[AnySize]) -> Sequence[int] | None:
    """Return the dims, most major first, if the tensor is dense; else None."""
    if isinstance(strides, Order):
        return strides.dims or None
    order = sorted(range(len(shape)), key=lambda d: -strides[d])
    dense = all(strides[d] == prod(shape[x] for x in order[at + 1 :]) for at, d in enumerate(order))
    return order if dense else None


def _tensors(call: Call) -> dict[str, ir.Value]:
    """Return the tensors that a call reads, by role."""
    names = zip(parameters(call.spec.target), call.spec.args, strict=True)
    read = [_ROLES.get(name, name) for (name, _, _), arg in names if isinstance(arg, TensorType | IntValue)]
    return {role: value for role, value in zip(read, call.operands, strict=True) if role in ROLES}


def _permuted(type_: TensorType, order: Sequence[int]) -> TensorType:
    return type_.with_shape(tuple(type_.shape[d] for d in order))


def _settings(call: Call) -> tuple[bool, int, float, float]:
    """Return causal, q_offset, scale, and the lse of rows that attend to nothing (0 in ATen's kernel)."""
    spec = call.spec
    if spec.target.startswith("shardc."):
        offset = spec["q_offset"]
        return spec["causal"], 0 if isinstance(offset, IntValue) else offset, spec["scale"], -inf
    scale = spec["scale"]
    return spec["is_causal"], 0, 1 / sqrt(spec["query"].shape[-1]) if scale is None else scale, 0.0


def _fits(types: Mapping[str, TensorType]) -> bool:
    """Return whether heads and head sizes are static, and tensors agree on the size of each dim."""
    sizes: dict[str, AnySize] = {}
    for role, type_ in types.items():
        for dim, size in zip(ROLES[role][-len(type_.shape) :], type_.shape, strict=True):
            if dim in "hde" and isinstance(size, Size):
                return False
            if (role == "mask" and size == 1) or (dim == "h" and role in KEYS):
                continue
            if sizes.setdefault(dim, size) != size:
                return False
    return types["q"].shape[1] % types["k"].shape[1] == 0
