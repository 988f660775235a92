"""``torch-group-queries``: attention reads keys and values of grouped queries without repeating them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import Call, CallReader, target_name
from shardc.dialects.aten.types import TensorType
from shardc.passes.manager.attributes import attributes_of
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import find_function

_ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu"
_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view")
_COPIES = ("aten.clone", "aten.contiguous")


@dataclass(frozen=True)
class TorchGroupQueries(Pass):
    """``attention(q, repeat(k), repeat(v))`` becomes ``attention(q, k, v)``.

    Each head of ``k`` and ``v`` then serves a group of heads of ``q``. A single row of queries, as in
    decoding, becomes ``attention(view(q), k, v)``, whose rows are the heads of a group, since ATen reads keys
    and values for each head of ``q``, but once for all rows.
    """

    name: ClassVar[str] = "torch-group-queries"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        if function is None:
            return
        block = function.regions[0].blocks[0]
        builder, reader = CallBuilder(block), CallReader()
        for op in [view.operation for view in block.operations]:
            if op.name.startswith("torch.") and target_name(op) == _ATTENTION:
                _group(builder, reader, reader.read(op))


def _group(builder: CallBuilder, reader: CallReader, node: Call) -> None:
    query, key, value, *mask = node.operands
    narrow_key, narrow_value = _unrepeated(reader, key), _unrepeated(reader, value)
    if narrow_key is None or narrow_value is None:
        return
    sources = narrow_key, narrow_value
    q_type, k_type, v_type, *masks = (_type(reader, v) for v in (query, *sources, *mask))
    types = [type_ for type_ in node.spec.results if type_ is not None]
    heads = k_type.shape[1]
    if heads != v_type.shape[1] or len(types) < len(node.results):
        return
    op = node.op
    marks = attributes_of(op, "dist.phase", "dist.module")
    call = partial(builder.call, loc=op.location, ip=ir.InsertionPoint(op), attributes=marks)
    made = types
    is_row = None not in q_type.shape and q_type.shape[2] == 1 and not node.spec["is_causal"]
    if is_row and all(len(m.shape) == 4 and m.shape[1] == 1 for m in masks):
        rows, *made = (_folded(type_, heads) for type_ in (q_type, *types))
        (query,) = call("aten.view", (query, rows.shape), [rows]).results
    tensors = iter([query, *sources, *mask])
    arguments = [next(tensors) if isinstance(leaf, TensorType) else leaf for leaf in node.spec.args]
    results = call(_ATTENTION, arguments, made).results
    for old, new, type_, wanted in zip(node.results, results, made, types, strict=True):
        seen = new if type_ == wanted else call("aten.view", (new, wanted.shape), [wanted]).results[0]
        old.replace_all_uses_with(seen)
    op.erase()


def _folded(type_: TensorType, heads: int) -> TensorType:
    """Return the type with the groups of its heads as rows, of which it has one."""
    batch, every, _, *rest = type_.shape
    return type_.with_shape((batch, heads, every // heads, *rest))


def _unrepeated(reader: CallReader, value: ir.Value) -> ir.Value | None:
    """Return x [B, H, N, D] behind ``view(clone(expand(unsqueeze(x, 2), [B, H, G, N, D])))``, if the view's
    shape is [B, H * G, N, D].
    """
    shapes = [_type(reader, value).shape]
    for targets in (_VIEWS, _COPIES, ("aten.expand",), ("aten.unsqueeze",)):
        if isinstance(value, ir.OpResult) and target_name(value.owner.operation) in targets:
            value = value.owner.operation.operands[0]
            shapes.append(_type(reader, value).shape)
        elif targets is not _COPIES:
            return None
    seen, wide, one, source = shapes[0], *shapes[-3:]
    if len(source) != 4 or len(wide) != 5 or None in (source[1], wide[2]):
        return None
    batch, heads, *rest = source
    grouped, joined = (batch, heads, wide[2], *rest), (batch, heads * wide[2], *rest)
    return value if (wide, seen, one) == (grouped, joined, (batch, heads, 1, *rest)) else None


def _type(reader: CallReader, value: ir.Value) -> TensorType:
    type_ = reader.tensor_type(value.type)
    assert type_ is not None, "operands of attention are tensors"
    return type_
