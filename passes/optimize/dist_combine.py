"""``dist-combine``: many collectives become few."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType, read_type
from shardc.passes.base import Pass
from shardc.passes.optimize.packing import Packer
from shardc.passes.partition.storage import VIEWS
from shardc.passes.program import find_function

_KINDS = ("dist.all_reduce", "dist.all_gather", "dist.reduce_scatter")


@dataclass(frozen=True)
class DistCombine(Pass):
    """Packs collectives of one kind, over the same axes, of one dtype and phase, into buckets.

    A bucket is sent where all its operands are there and none of its results is needed yet: gathers as late as they can
    wait, reductions as soon as they can start. ``bucket-bytes`` bounds what a bucket holds, and so what it delays.
    PyTorch's DistributedDataParallel (Li et al., VLDB 2020) does so for all-reduces; its 25 MiB is the default.
    """

    name: ClassVar[str] = "dist-combine"
    bucket_bytes: int = 25 * 1024 * 1024

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        if function is None:
            return
        with module.context, ir.Location.unknown():
            self._combine(function.regions[0].blocks[0])

    def _combine(self, block: ir.Block) -> None:
        sink_views(block)
        ops = [o.operation for o in block.operations]
        for op in ops:
            if op.name == "dist.loop":
                self._combine(op.regions[0].blocks[0])
        buckets = collect_buckets(ops, self.bucket_bytes)
        if not buckets:
            return
        packer = Packer(CallBuilder(block))
        packed = {id(m.op) for bucket in buckets for m in bucket.members}
        for bucket in buckets:
            # A bucket may be sent after a packed op that stands where it could start: that op reads nothing of it.
            before = next(op for op in ops[bucket.place :] if id(op) not in packed)
            packer.pack([m.op for m in bucket.members], before)


@dataclass(frozen=True)
class Member:
    """A collective that may be packed: where its operand is there, where its result is first needed, its size."""

    op: ir.Operation
    earliest: int
    latest: int
    size_bytes: int


@dataclass
class Bucket:
    """Members that can be sent together, before the op numbered ``place``."""

    late: bool
    members: list[Member] = field(default_factory=list)

    @property
    def earliest(self) -> int:
        return max(m.earliest for m in self.members)

    @property
    def latest(self) -> int:
        return min(m.latest for m in self.members)

    @property
    def place(self) -> int:
        return self.latest if self.late else self.earliest

    def takes(self, member: Member, limit: int) -> bool:
        size = sum(m.size_bytes for m in self.members) + member.size_bytes
        fits = max(self.earliest, member.earliest) <= min(self.latest, member.latest)
        return fits and size <= limit


def sink_views(block: ir.Block) -> None:
    """Move views of what a collective makes down to their first reader, so that they do not hurry it."""
    ops = [o.operation for o in block.operations]
    place = {o.results[0]: i for i, o in enumerate(ops) if len(o.results)}
    views: list[ir.Operation] = []
    seen: set[ir.Value] = set()
    for op in ops:
        if op.name in _KINDS:
            seen.add(op.results[0])
        elif op.name.removeprefix("torch.") in VIEWS and op.operands[0] in seen:
            seen.add(op.results[0])
            views.append(op)
    for op in reversed(views):
        reader = _first_reader(op.results[0], ops, place)
        op.move_before(ops[reader])


def collect_buckets(ops: list[ir.Operation], limit: int) -> list[Bucket]:
    """The buckets of two and more members in a block's ops."""
    place = {o.results[0]: i for i, o in enumerate(ops) if len(o.results)}
    open_buckets: dict[tuple[object, ...], Bucket] = {}
    found: list[Bucket] = []
    for op in ops:
        if op.name not in _KINDS:
            continue
        key = _key(op)
        member = _member(op, ops, place)
        if key is None or member is None:
            continue
        bucket = open_buckets.get(key)
        if bucket is None or not bucket.takes(member, limit):
            bucket = open_buckets[key] = Bucket(late=op.name == "dist.all_gather")
            found.append(bucket)
        bucket.members.append(member)
    return [b for b in found if len(b.members) > 1]


def _key(op: ir.Operation) -> tuple[object, ...] | None:
    """What collectives must share to be packed; None for one whose dim has others before it."""
    attributes = op.attributes
    if "dim" in attributes and prod(_type(op.operands[0]).shape[: attributes["dim"].value]) != 1:
        return None
    reduction = attributes["reduction"].value if "reduction" in attributes else ""
    phase = attributes["dist.phase"].value if "dist.phase" in attributes else ""
    return op.name, attributes["axes"], reduction, _type(op.operands[0]).dtype, phase, "dist.in_loop" in attributes


def _member(op: ir.Operation, ops: list[ir.Operation], place: dict[ir.Value, int]) -> Member | None:
    value = op.operands[0]
    earliest = 0
    if isinstance(value.owner, ir.Operation | ir.OpView):
        producer = value.owner.operation
        if producer.name in _KINDS:
            return None  # it may itself be sent later than it stands
        earliest = place[producer.results[0]] + 1
    latest = _first_reader(op.results[0], ops, place)
    size = max(_type(value).size_bytes, _type(op.results[0]).size_bytes)
    return Member(op, earliest, latest, size)


def _first_reader(value: ir.Value, ops: list[ir.Operation], place: dict[ir.Value, int]) -> int:
    """The number of the first op that reads ``value``; lists count where they stand."""
    last = len(ops) - 1
    readers = [place.get(u.owner.results[0], last) if len(u.owner.results) else last for u in value.uses]
    return min(readers, default=last)


def _type(value: ir.Value) -> TensorType:
    found = read_type(value.type)
    assert found is not None
    return found

