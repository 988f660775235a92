"""``dist-combine``: packs small collectives into few large ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.cost.collective import BUCKET_BYTES
from shardc.dialects.aten.build import CallBuilder
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import program_functions
from shardc.passes.manager.sum_place import sum_is
from shardc.passes.optimize.chains import KINDS, Chains, first_need, is_view
from shardc.passes.optimize.packing import Packer
from shardc.passes.partition.local_call import type_of


@dataclass(frozen=True)
class DistCombine(Pass):
    """Packs collectives of one kind, over the same axes, of one dtype and phase, into buckets.

    A bucket is placed after all its operands are computed and before any of its results is read: gathers as
    late as possible, reductions as early as possible. In a chain of collectives, reductions are packed first,
    then the collectives on their results. In a pipeline, each stage and each rank's function is packed
    separately. ``bucket-bytes`` limits the size of a bucket, and so its delay. The default is 25 MiB, as in
    PyTorch's DistributedDataParallel (for all-reduces; Li et al., VLDB 2020).
    """

    name: ClassVar[str] = "dist-combine"
    bucket_bytes: int = BUCKET_BYTES

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            for function in program_functions(module):
                self._combine(function.regions[0].blocks[0])

    def _combine(self, block: ir.Block) -> None:
        ops = [o.operation for o in block.operations]
        casts = [op for op in ops if sum_is("before", op)]
        for op in casts:
            sink(op)
        sink_views(block)
        ops = [o.operation for o in block.operations]
        for op in ops:
            if op.name == "dist.loop":
                self._combine(op.regions[0].blocks[0])
        chains = Chains(ops)
        for depth in range(chains.longest):
            self._pack(block, chains, depth)
        for op in casts:  # their operands are larger
            rise(op)
        sink_views(block)

    def _pack(self, block: ir.Block, chains: Chains, depth: int) -> None:
        """Pack the collectives with ``depth`` others before them in their chain."""
        ops = [o.operation for o in block.operations]
        buckets = collect_buckets(ops, self.bucket_bytes, {v for v, d in chains.depth.items() if d == depth})
        if not buckets:
            return
        builder = CallBuilder(block)
        chains.forget({m.op.results[0] for bucket in buckets for m in bucket.members})
        packed = {id(m.op) for bucket in buckets for m in bucket.members}
        for bucket in buckets:
            # A packed op at that position reads none of its results, so the bucket may come after it.
            before = next(op for op in ops[bucket.place :] if id(op) not in packed)
            members = [m.op for m in bucket.members]
            Packer.at(builder, members[0], ir.InsertionPoint(before)).pack(members)
        chains.settle()


@dataclass(frozen=True)
class Member:
    """A collective to pack: when its operand is available, when its result is first read, its size."""

    op: ir.Operation
    earliest: int
    latest: int
    size_bytes: int


@dataclass
class Bucket:
    """Collectives that can be sent together, before the op numbered ``place``."""

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
    """Move views of a collective's result down to their first reader, so that it may run later.

    The parts of a packed result are such views.
    """
    views: list[ir.Operation] = []
    seen: set[ir.Value] = set()
    for op in [o.operation for o in block.operations]:
        if op.name in KINDS:
            seen.add(op.results[0])
        elif (is_view(op) or op.name == "torch.aten.slice.Tensor") and op.operands[0] in seen:
            seen.add(op.results[0])
            views.append(op)
    for op in reversed(views):
        sink(op)


def sink(op: ir.Operation) -> None:
    """Move an op down to the first reader of its result."""
    readers = [use.owner.operation for use in op.results[0].uses]
    if readers:
        op.move_before(reduce(lambda a, b: a if a.is_before_in_block(b) else b, readers))


def rise(op: ir.Operation) -> None:
    """Move an op up to directly after the last op that it reads."""
    made = [v.owner.operation for v in op.operands if isinstance(v, ir.OpResult)]
    if made:
        op.move_after(reduce(lambda a, b: b if a.is_before_in_block(b) else a, made))


def collect_buckets(ops: list[ir.Operation], limit: int, chosen: set[ir.Value]) -> list[Bucket]:
    """Return the buckets of at least two members, among the collectives whose results are in ``chosen``."""
    place = {o.results[0]: i for i, o in enumerate(ops) if len(o.results)}
    open_buckets: dict[tuple[object, ...], Bucket] = {}
    found: list[Bucket] = []
    for op in ops:
        key = _key(op) if op.name in KINDS and op.results[0] in chosen else None
        if key is None:
            continue
        member = _member(op, ops, place)
        bucket = open_buckets.get(key)
        if bucket is None or not bucket.takes(member, limit):
            bucket = open_buckets[key] = Bucket(late=op.name == "dist.all_gather")
            found.append(bucket)
        bucket.members.append(member)
    return [b for b in found if len(b.members) > 1]


def _key(op: ir.Operation) -> tuple[object, ...] | None:
    """Return a key that collectives must share to be packed; None if more major dims precede its dim."""
    attributes = op.attributes
    if "dim" in attributes and prod(type_of(op.operands[0]).shape[: attributes["dim"].value]) != 1:
        return None
    reduction = attributes["reduction"].value if "reduction" in attributes else ""
    phase = attributes["dist.phase"].value if "dist.phase" in attributes else ""
    dtype, in_loop = type_of(op.operands[0]).dtype, "dist.in_loop" in attributes
    return op.name, attributes["axes"], reduction, dtype, phase, in_loop


def _member(op: ir.Operation, ops: list[ir.Operation], place: dict[ir.Value, int]) -> Member:
    value = op.operands[0]
    is_made = isinstance(value.owner, ir.Operation | ir.OpView)
    earliest = place[value.owner.operation.results[0]] + 1 if is_made else 0
    latest = first_need(op.results[0], ops, place, patient=op.name != "dist.all_gather")
    size = max(type_of(value).size_bytes, type_of(op.results[0]).size_bytes)
    return Member(op, earliest, latest, size)
