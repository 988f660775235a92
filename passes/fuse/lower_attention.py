"""Attention, forward and backward, as kernels of their own: ``shardc.attention`` and ATen's fused CPU kernel.

Transposes of the operands become index maps, and results are laid out ``[batch, row, head, size]``, as ATen's CPU
kernel lays them out: what models put around attention is then free. Calls that the CPU kernels do not cover stay calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod, sqrt

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import Call, CallReader, IntValue
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.kern.attention import attention
from shardc.dialects.kern.attention_backward import attention_backward
from shardc.dialects.kern.attention_maps import FLOATS, KEYS, ROLES, attention_attributes, map_of
from shardc.dialects.kern.kernel import kernel
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values

LANES, FILLED = 16, 0.625
"""ATen is faster where less than this part of vectors of so many lanes holds a query (8 and 17 queries, with AVX-512)."""

_FORWARD = {"q": "q", "k": "k", "v": "v", "mask": "mask"}
_GRADIENT = {"grad_out": "grad_out", **_FORWARD, "out": "out", "lse": "lse"}
_ATEN_FORWARD = {"q": "query", "k": "key", "v": "value", "mask": "attn_mask"}
_ATEN_GRADIENT = {"grad_out": "grad_out", **_ATEN_FORWARD, "out": "out", "lse": "logsumexp"}
_FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"
_ARGUMENTS = {
    "shardc.attention": _FORWARD,
    "shardc.attention_backward": _GRADIENT,
    _FLASH: _ATEN_FORWARD,
    f"{_FLASH}_backward": _ATEN_GRADIENT,
}
"""What each target calls the tensors that it reads."""
ATTENTION = frozenset(_ARGUMENTS)

_FORWARD_ROLES = ("q", "k", "v", "mask"), ("out", "lse")
_BACKWARD_ROLES = ("grad_out", "q", "k", "v", "out", "lse", "mask"), ("dq", "dk", "dv")
_VIEWS = tuple(f"torch.aten.{name}" for name in ("transpose.int", "permute", "view", "expand"))


@dataclass(frozen=True)
class _Operand:
    """A tensor and what its dims are in the order of its memory; None: a dim of size 1 that is read at 0."""

    value: ir.Value
    dims: tuple[str | None, ...]


class AttentionKernels:
    """Turns calls of a block into kernels. ``strides`` are those of arguments that are not contiguous."""

    def __init__(self, block: ir.Block, strides: Mapping[ir.Value, Sequence[int]]) -> None:
        self._reader, self._builder, self._strides = CallReader(), CallBuilder(block), strides
        self._context = block.owner.context

    def flops(self, op: ir.Operation) -> int:
        """Floating-point operations of the matmuls of a call; 0 for one that the CPU kernels do not compute."""
        call = self._reader.read(op)
        types = {role: _type(value) for role, value in _tensors(call).items()}
        if not _covers(call, types):
            return 0
        return (10 if "grad_out" in types else 4) * types["q"].numel * types["k"].shape[2]

    def is_faster(self, op: ir.Operation) -> bool:
        """Whether a kernel is faster than ATen, as far as can be said without measuring."""
        rows = _type(_tensors(self._reader.read(op))["q"]).shape[2]
        return rows >= FILLED * LANES * -(-rows // LANES)

    def write(self, op: ir.Operation, name: str) -> ir.Operation:
        """The kernel that stands in place of ``op``, one with :meth:`flops`, which is erased."""
        call = self._reader.read(op)
        tensors = _tensors(call)
        given, made = _BACKWARD_ROLES if "grad_out" in tensors else _FORWARD_ROLES
        given = tuple(role for role in given if role in tensors)
        loc, ip = op.location, ir.InsertionPoint(op)
        operands = [self._operand(role, tensors[role], loc, ip) for role in given]
        dims = [o.dims for o in operands] + [_result_dims(role) for role in made]
        group = _type(tensors["q"]).shape[1] // _type(tensors["k"]).shape[1]
        groups = [group if role in KEYS else 1 for role in (*given, *made)]
        maps = [map_of(d, g, self._context) for d, g in zip(dims, groups, strict=True)]
        laid_out = [_laid_out(_type(result), role) for role, result in zip(made, call.results, strict=True)]
        arguments = [builtin_type(_type(o.value), self._context) for o in operands]
        results = [builtin_type(t, self._context) for t in laid_out]
        body, values, kernel_op = kernel(name, [o.value for o in operands], arguments, laid_out, loc=loc, ip=ip)
        inside = ir.InsertionPoint(body)
        write = attention_backward if "grad_out" in tensors else attention
        attributes = attention_attributes(maps, *_settings(call), loc)
        yield_values(write(list(body.arguments), results, attributes, loc=loc, ip=inside), loc=loc, ip=inside)
        for old, value in zip(call.results, values, strict=True):
            old.replace_all_uses_with(self._in_order(value, _type(old), op, ip))
        op.erase()
        return kernel_op

    def _operand(self, role: str, value: ir.Value, loc: ir.Location, ip: ir.InsertionPoint) -> _Operand:
        shape = _type(value).shape
        dims = ROLES[role][-len(shape) :]
        spread = [role == "mask" and n == 1 for n in shape]
        operand = _Operand(value, tuple(None if same else d for d, same in zip(dims, spread, strict=True)))
        while (source := self._source(operand, role)) is not None:
            operand = source
        return self._contiguous(operand, loc, ip)

    def _source(self, operand: _Operand, role: str) -> _Operand | None:
        """What the tensor is a transpose or the same view of, or, if it is a mask, an expansion; else None."""
        owner = None if isinstance(operand.value, ir.BlockArgument) else operand.value.owner
        if owner is None or owner.name not in _VIEWS:
            return None
        call = self._reader.read(owner)
        source, rank = call.operands[0], len(operand.dims)
        if call.spec.target == "aten.view":
            return _Operand(source, operand.dims) if _type(source) == _type(operand.value) else None
        if call.spec.target == "aten.expand":
            shape = _type(source).shape
            if role != "mask" or len(shape) != rank:
                return None
            return _Operand(source, tuple(None if n == 1 else d for d, n in zip(operand.dims, shape, strict=True)))
        order = list(range(rank))
        if call.spec.target == "aten.permute":
            order = [d % rank for d in call.spec["dims"]]
        else:
            x, y = call.spec["dim0"] % rank, call.spec["dim1"] % rank
            order[x], order[y] = y, x
        return _Operand(source, tuple(operand.dims[order.index(d)] for d in range(rank)))

    def _contiguous(self, operand: _Operand, loc: ir.Location, ip: ir.InsertionPoint) -> _Operand:
        """An argument whose dims are contiguous in another order, in that order."""
        strides, shape = self._strides.get(operand.value), _type(operand.value).shape
        if strides is None:
            return operand
        order = sorted(range(len(shape)), key=lambda d: -strides[d])
        if any(strides[d] != prod(shape[x] for x in order[at + 1 :]) for at, d in enumerate(order)):
            return operand
        type_ = _type(operand.value).with_shape(tuple(shape[d] for d in order))
        value = self._builder.call("aten.permute", (operand.value, order), [type_], loc, ip).results[0]
        return _Operand(value, tuple(operand.dims[d] for d in order))

    def _in_order(self, value: ir.Value, type_: TensorType, op: ir.Operation, ip: ir.InsertionPoint) -> ir.Value:
        """A result in the order of dims that the call gives it."""
        phase = {name: op.attributes[name] for name in ("dist.phase",) if name in op.attributes}
        return self._builder.call("aten.transpose.int", (value, 1, 2), [type_], op.location, ip, phase).results[0]


def argument_strides(function: ir.Operation) -> dict[ir.Value, list[int]]:
    """The strides of a function's arguments that are not contiguous, where ``kern.strides`` says them."""
    if "kern.strides" not in function.attributes:
        return {}
    noted = (list(ir.DenseI64ArrayAttr(strides)) for strides in function.attributes["kern.strides"])
    arguments = function.regions[0].blocks[0].arguments
    return {value: strides for value, strides in zip(arguments, noted, strict=True) if strides}


def _type(value: ir.Value) -> TensorType:
    type_ = read_type(value.type)
    assert type_ is not None
    return type_


def _tensors(call: Call) -> dict[str, ir.Value]:
    """The tensors that a call reads, by role."""
    roles = {argument: role for role, argument in _ARGUMENTS[call.spec.target].items()}
    names = [name for name, _, _ in parameters(call.spec.target)]
    read = [name for name, arg in zip(names, call.spec.args, strict=True) if isinstance(arg, TensorType | IntValue)]
    return {roles[name]: value for name, value in zip(read, call.operands, strict=True) if name in roles}


def _result_dims(role: str) -> tuple[str, ...]:
    """The dims of a result in the order of its memory."""
    b, h, *inner = ROLES[role]
    return (b, inner[0], h, *inner[1:])


def _laid_out(type_: TensorType, role: str) -> TensorType:
    order = [ROLES[role].index(dim) for dim in _result_dims(role)]
    return type_.with_shape(tuple(type_.shape[d] for d in order))


def _settings(call: Call) -> tuple[bool, int, float, float]:
    """causal, q_offset, scale, and the lse of rows that see nothing, for which ATen's kernel says 0."""
    spec = call.spec
    if spec.target.startswith("shardc."):
        return spec["causal"], spec["q_offset"], spec["scale"], -inf
    scale = spec["scale"]
    return spec["is_causal"], 0, 1 / sqrt(spec["query"].shape[-1]) if scale is None else scale, 0.0


def _covers(call: Call, types: Mapping[str, TensorType]) -> bool:
    """Whether the CPU kernels compute this call."""
    q, k, v, mask = (types.get(role) for role in ("q", "k", "v", "mask"))
    assert q is not None and k is not None and v is not None
    if call.spec.target.startswith("shardc."):
        if isinstance(call.spec["q_offset"], IntValue):  # a rank's own place among the rows, known only as it runs
            return False
    elif call.spec["dropout_p"] != 0:
        return False
    if any(0 in t.shape or None in t.shape for t in types.values()) or any(r is None for r in call.spec.results):
        return False
    if q.dtype not in FLOATS or any(t.dtype != q.dtype for role, t in types.items() if role not in ("lse", "mask")):
        return False
    if mask is not None and (len(mask.shape) > 4 or mask.dtype not in (*FLOATS, torch.bool)):
        return False
    return q.shape[1] % k.shape[1] == 0
