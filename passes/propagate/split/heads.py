"""Attention with the sequence split outside and the heads split inside, by all-to-alls before and after.

Jacobs et al., DeepSpeed-Ulysses (2023). All-to-alls move queries, keys and values in and the output back, and
likewise their gradients. If there are fewer key/value heads than devices, heads are copied first, so that
each device receives the head that its queries read. The exchanges are written as constraints, which
propagation and reshards follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall, fill
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.passes.manager.attention import ATTRIBUTE, attention_axes, copies
from shardc.passes.manager.attributes import attributes_of
from shardc.passes.manager.program import Node
from shardc.passes.partition.local_call import type_of
from shardc.passes.propagate.split.foresight import Foresight
from shardc.passes.propagate.split.key_rows import HEADS, ROWS, pads_after, trim_before
from shardc.passes.propagate.split.writer import SplitWriter


@dataclass(frozen=True)
class Exchange:
    """A call of attention whose heads are split over ``axes``, and over ``heads`` in total.

    ``copies`` is the number of copies of each key/value head. ``outside`` has the sharding outside the call
    for each operand, then for each result. ``trims`` has the slice that makes an operand, and ``pads`` the
    pads of a result, if devices divide only the rows before the slice and after the pads.
    """

    node: Node
    axes: Axes
    heads: Axes
    copies: int
    outside: tuple[Sharding, ...]
    trims: tuple[Node | None, ...]
    pads: tuple[tuple[Node, ...], ...]

    def inside(self, sharding: Sharding, shape: tuple[int, ...]) -> Sharding:
        """Return a tensor's sharding inside the call: the sequence whole, and heads split if it has
        several.
        """
        return _with_heads(sharding, self.heads if shape[HEADS] > 1 else (), self.heads)

    def returned(self, sharding: Sharding) -> Sharding:
        """Return the sharding of the gradient of copied keys or values after the all-to-all, before copies
        are summed.
        """
        heads = tuple(a for a in self.heads if not _overlaps(a, self.axes))
        return _with_heads(sharding, heads, heads)


def find_exchanges(seen: Foresight) -> Iterator[Exchange]:
    """Yield the calls whose rows are split over axes that are to split heads, in program order."""
    for node in seen.program.nodes:
        named = attention_axes(node.op, "ulysses")
        if not named:
            continue
        query = node.operands[1 if node.spec.target.endswith("_backward") else 0]
        lies = _early(seen, query)
        axes = tuple(a for a in lies.dims[ROWS] if a.name in named)
        if axes:
            heads = (*lies.dims[HEADS], *axes)
            each = copies(node.spec["q"].shape[1], node.spec["k"].shape[1], prod(a.size for a in heads))
            trims = tuple(_trim(seen, value, axes) for value in node.operands)
            ways = prod(a.size for a in axes)
            pads = tuple(pads_after(seen.program, value, ways) for value in node.results)
            stored = (t.operands[0] if t else v for t, v in zip(trims, node.operands, strict=True))
            made = (p[0].results[0] if p else v for p, v in zip(pads, node.results, strict=True))
            lying = [_early(seen, value) for value in (*stored, *made)]
            padded = (*(False for _ in trims), *map(bool, pads))
            outside = tuple(_with_rows(s, axes) if p else s for s, p in zip(lying, padded, strict=True))
            yield Exchange(node, axes, heads, each, outside, trims, pads)


def _trim(seen: Foresight, value: int, axes: Axes) -> Node | None:
    """Return the slice that makes an operand, if ``axes`` split the rows before it."""
    trim = trim_before(seen.program, value, prod(a.size for a in axes))
    return trim if trim is not None and _early(seen, trim.operands[0]).dims[ROWS] == axes else None


def _early(seen: Foresight, value: int) -> Sharding:
    """Return a value's sharding in round 0. Constraints must not fix the axes of later rounds."""
    later, sharding = seen.state.priority, seen.sharding(value)
    return Sharding(tuple(tuple(a for a in dim if (value, a.name) not in later) for dim in sharding.dims))


def _with_rows(sharding: Sharding, axes: Axes) -> Sharding:
    """Return ``sharding`` with ``axes`` on the dim of rows, and on no other dim."""
    dims = [tuple(a for a in dim if not _overlaps(a, axes)) for dim in sharding.dims]
    dims[ROWS] = (*dims[ROWS], *axes)
    return Sharding(tuple(dims))


def _with_heads(sharding: Sharding, heads: Axes, taken: Axes) -> Sharding:
    """Return ``sharding`` with ``heads`` on the dim of heads, and the axes ``taken`` on no other dim."""
    dims = [tuple(a for a in dim if not _overlaps(a, taken)) for dim in sharding.dims]
    dims[HEADS] = heads
    return Sharding(tuple(dims))


def _overlaps(axis: Axis, axes: Axes) -> bool:
    return any(a.overlaps(axis) for a in axes)


Key = tuple[ir.Value, Sharding]


@dataclass
class HeadsWriter:
    """Writes exchanges."""

    codec: ShardingCodec
    builder: CallBuilder
    _inside: dict[Key, ir.Value] = field(default_factory=dict)
    """Outside value -> the value inside the call; backward reuses those of forward."""

    def write(self, exchange: Exchange) -> None:
        op, spec = exchange.node.op, exchange.node.spec
        w = SplitWriter.at(self.builder, op)
        tensors = [v for v in op.operands if read_type(v.type) is not None]
        lies = exchange.outside[: len(tensors)]
        read = [
            self._read(w, exchange, name in ("k", "v"), value, outside, trim)
            for name, value, outside, trim in zip(
                _tensor_names(spec), tensors, lies, exchange.trims, strict=True
            )
        ]
        made = w.calls(spec.target, *fill(spec.args, read))
        for name, attribute in attributes_of(op).items():
            if name not in (ATTRIBUTE, "dist.refine"):
                made[0].owner.attributes[name] = attribute
        results = zip(op.results, made, exchange.outside[len(tensors) :], exchange.pads, strict=True)
        for result, value, outside, pads in results:
            if pads:
                inside = exchange.inside(outside, type_of(value).shape)
                args = pads[0].spec.args[1:]
                value = w.call(pads[0].spec.target, self._constraint(w, value, inside), *args)
            for old in [pad.op.results[0] for pad in pads] or [result]:
                old.replace_all_uses_with(self._outside(w, exchange, value, outside, type_of(old)))
        for pad in (pad for pads in exchange.pads for pad in pads):
            pad.op.erase()
        op.erase()
        for trim in {id(trim): trim for trim in exchange.trims if trim is not None}.values():
            if not list(trim.op.results[0].uses):
                trim.op.erase()

    def _read(
        self,
        w: SplitWriter,
        exchange: Exchange,
        is_key: bool,
        value: ir.Value,
        outside: Sharding,
        trim: Node | None,
    ) -> ir.Value:
        """Return an operand as the call reads it: with heads split, and keys and values copied."""
        if trim is not None:
            stored = self._read(w, exchange, is_key, value.owner.operands[0], outside, None)
            return w.call(trim.spec.target, stored, *trim.spec.args[1:])
        each = exchange.copies if is_key else 1
        shape = type_of(value).shape
        inside = exchange.inside(outside, (shape[0], shape[1] * each, *shape[2:]))
        key = value, inside
        if key not in self._inside and (inside != outside or each > 1):
            here = self._constraint(w, value, outside)
            self._inside[key] = self._constraint(w, _copied(w, here, each), inside)
        return self._inside.get(key, value)

    def _outside(
        self, w: SplitWriter, exchange: Exchange, value: ir.Value, outside: Sharding, wanted: TensorType
    ) -> ir.Value:
        """Return a result with the sequence split again; gradients of copied keys or values are summed."""
        shape = type_of(value).shape
        inside = exchange.inside(outside, shape)
        here = self._constraint(w, value, inside)
        if shape == wanted.shape:
            there = self._constraint(w, here, outside)
            self._inside[there, inside] = here
            return there
        there = self._constraint(w, here, exchange.returned(outside))
        batch, heads, *rest = wanted.shape
        return w.sum(w.view(there, (batch, heads, exchange.copies, *rest)), 2, keepdim=False)

    def _constraint(self, w: SplitWriter, value: ir.Value, sharding: Sharding) -> ir.Value:
        made = constraint(value, sharding, self.codec, loc=w.loc, ip=w.ip)
        for name, attribute in w.attributes.items():
            made.owner.attributes[name] = attribute
        return made


def _tensor_names(spec: OpCall) -> list[str]:
    """Return the parameter names of a call's tensors, in order."""
    named = zip(parameters(spec.target), spec.args, strict=True)
    return [name for (name, _, _), arg in named if isinstance(arg, TensorType)]


def _copied(w: SplitWriter, keys: ir.Value, each: int) -> ir.Value:
    """Repeat each head of keys or values [batch, heads, sequence, size] ``each`` times."""
    if each == 1:
        return keys
    batch, heads, *rest = type_of(keys).shape
    copied = w.call("aten.expand", w.call("aten.unsqueeze", keys, 2), (batch, heads, each, *rest), False)
    return w.call("aten.reshape", copied, (batch, heads * each, *rest))
