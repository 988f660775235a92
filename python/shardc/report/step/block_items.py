"""Ops of a block, outside its loops, grouped into items for the cost model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import prod

from torch_mlir import ir

from shardc.cost.memory_passes import elements, is_pointwise, read_sizes
from shardc.cost.ops import Product
from shardc.cost.step.work import Item, Kind
from shardc.cost.work import MATMULS, flops, matmul_sizes, seen_part
from shardc.dialects.aten.call import Call, CallReader, OpCall, is_constant
from shardc.dialects.aten.schema import may_draw
from shardc.dialects.dist.collectives.names import COLLECTIVES
from shardc.dialects.dist.offset import OffsetOp
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.location import source_line
from shardc.passes.fuse.reading.view import VIEWS
from shardc.report.traffic import collective_phase

_VIEWS = frozenset(f"torch.{view}" for view in VIEWS) | {"dist.slice"}
_OUTSIDE = -1
"""Number that stands for readers outside the block."""


@dataclass
class _Entry:
    """Item under construction.

    ``domain``: elements that a pass over memory visits; None if no other call can join the item. ``reads``
    and ``makes``: bytes by value. ``offset``: where an attention's queries start, as a mean over devices.
    """

    phase: str
    kind: Kind
    domain: int | None = None
    calls: list[OpCall] = field(default_factory=list)
    needs: set[int] = field(default_factory=set)
    reads: dict[ir.Value, int] = field(default_factory=dict)
    makes: dict[ir.Value, int] = field(default_factory=dict)
    collective: str = ""
    axes: Axes = ()
    where: str = ""
    offset: float | None = None


class BlockItems:
    """Builder of items from ops that are added in program order."""

    def __init__(self, reader: CallReader, codec: ShardingCodec) -> None:
        self._reader, self._codec = reader, codec
        self._entries: list[_Entry] = []
        self._maker: dict[ir.Value, int] = {}
        """Value that is no view -> number of the entry that makes it."""
        self._viewed: dict[ir.Value, ir.Value] = {}
        """View -> the value that it is a view of."""
        self._readers: dict[ir.Value, set[int]] = {}

    def add(self, op: ir.Operation) -> None:
        if op.name in _VIEWS:
            self._viewed[op.results[0]] = self._value(op.operands[0])
        elif op.name in COLLECTIVES:
            self._add_collective(op)
        elif op.name.startswith("torch.") and not op.name.startswith("torch.prim.") and not is_constant(op):
            self._add_call(op)
        else:
            self.read_outside(op)

    def read_outside(self, op: ir.Operation) -> None:
        """Record that an op with regions reads its operands."""
        self._read(op.operands, _OUTSIDE)

    def items(self) -> tuple[Item, ...]:
        return tuple(self._item(number, entry) for number, entry in enumerate(self._entries))

    def _value(self, value: ir.Value) -> ir.Value:
        return self._viewed.get(value, value)

    def _read(self, values: Iterable[ir.Value], number: int) -> None:
        for value in values:
            self._readers.setdefault(self._value(value), set()).add(number)

    def _makers(self, values: Iterable[ir.Value]) -> set[int]:
        found = (self._maker.get(self._value(value)) for value in values)
        return {number for number in found if number is not None}

    def _add_collective(self, op: ir.Operation) -> None:
        axes = read_axes(op, self._codec)
        kind = op.name.removeprefix("dist.")
        entry = _Entry(collective_phase(op), "collective", collective=kind, axes=axes)
        entry.where = source_line(op.location) or ""
        sizes = [self._size(value) or 0 for value in op.operands]
        self._enter(self._new(entry), op.operands, sizes, op.results)

    def _add_call(self, op: ir.Operation) -> None:
        call = self._reader.read(op)
        spec, number = call.spec, self._pass_of(call)
        if flops(spec):
            number = self._new(_Entry(_phase(op), "attention" if "attention" in spec.target else "matmul"))
        elif number is None:
            number = self._new(_Entry(_phase(op), "memory", elements(spec)))
        entry = self._entries[number]
        if not entry.calls:
            entry.where = source_line(op.location) or ""
        entry.calls.append(spec)
        if entry.kind == "attention":
            entry.offset = next((at for v in call.operands if (at := self._mean_offset(v)) is not None), None)
        if not is_pointwise(spec):
            entry.domain = None
        tensors = [value for value in call.operands if self._size(value) is not None]
        self._enter(number, tensors, read_sizes(spec), call.results)

    def _mean_offset(self, value: ir.Value) -> float | None:
        """Return the mean over devices of an integer that ``dist.offset`` computes; None for other values."""
        op = value.owner.operation if isinstance(value, ir.OpResult) else None
        if op is None or op.name != OffsetOp.OPERATION_NAME:
            return None
        start = self._mean_offset(op.operands[0]) if len(op.operands) else 0.0
        base, scale, extent = (op.attributes[name].value for name in ("base", "scale", "extent"))
        ways = prod(axis.size for axis in self._codec.read_axes(op.attributes["axes"]))
        return None if start is None else start + base + scale * extent * (ways - 1) / 2

    def _pass_of(self, call: Call) -> int | None:
        """Return the number of the entry that the call can join, or None.

        That is the latest entry among the makers of its operands, so that all other operands exist by then.
        """
        number = max(self._makers(call.operands), default=None)
        if number is None:
            return None
        domain = self._entries[number].domain
        return number if domain is not None and domain == elements(call.spec) else None

    def _new(self, entry: _Entry) -> int:
        self._entries.append(entry)
        return len(self._entries) - 1

    def _enter(
        self, number: int, operands: Iterable[ir.Value], sizes: Iterable[int], results: Iterable[ir.Value]
    ) -> None:
        """Record what entry ``number`` reads, with ``sizes`` in bytes of the operands, and what it makes."""
        entry, operands = self._entries[number], list(operands)
        entry.needs |= self._makers(operands) - {number}
        self._read(operands, number)
        for operand, size in zip(operands, sizes, strict=True):
            value = self._value(operand)
            if self._maker.get(value) != number:
                entry.reads[value] = min(size, self._size(value) or size)
        for result in results:
            if (size := self._size(result)) is not None:
                entry.makes[result] = size
                self._maker[result] = number

    def _size(self, value: ir.Value) -> int | None:
        """Return the bytes of a tensor; None for other values."""
        type_ = self._reader.tensor_type(value.type)
        return None if type_ is None else type_.size_bytes

    def _item(self, number: int, entry: _Entry) -> Item:
        read = sum(entry.reads.values())
        outside = (v for v in entry.makes if self._readers.get(v, {_OUTSIDE}) != {number})
        written = sum(entry.makes[value] for value in outside)
        name = entry.calls[0].target if entry.calls else entry.collective
        item = Item(
            entry.kind,
            entry.phase,
            tuple(sorted(entry.needs)),
            calls=max(1, len(entry.calls)),
            name=name,
            where=entry.where,
        )
        if entry.kind == "collective":
            return replace(item, moved_bytes=read, collective=entry.collective, axes=entry.axes)
        plain = all(is_pointwise(call) and not may_draw(call.target) for call in entry.calls)
        item = replace(item, moved_bytes=read + written, is_plain=plain)
        return item if entry.kind == "memory" else _with_arithmetic(item, entry.calls[0], entry.offset)


def read_axes(op: ir.Operation, codec: ShardingCodec) -> Axes:
    """Return the mesh axes that a collective spans."""
    if "axes" in op.attributes:
        return codec.read_axes(op.attributes["axes"])
    source, target = (codec.read(op.attributes[name]) for name in ("source", "target"))
    return tuple(sorted({*source.used, *target.used}))


def _with_arithmetic(item: Item, call: OpCall, offset: float | None) -> Item:
    product, last = None, call.tensors[-1]
    if call.target in MATMULS:
        product = Product(*matmul_sizes(call.tensors[-2].shape, last.shape), last.dtype.itemsize)
    # The last tensor of an attention or a convolution may hold statistics, or a bias.
    element_bytes = call.tensors[0].dtype.itemsize
    seen = seen_part(call, offset)
    return replace(item, flops=flops(call), seen=seen, product=product, element_bytes=element_bytes)


def _phase(op: ir.Operation) -> str:
    return op.attributes["dist.phase"].value if "dist.phase" in op.attributes else ""
