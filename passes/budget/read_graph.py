"""Reading of a memory budget's graph from a step at level 2, with sizes and work of one device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir

from shardc.cost.work import work_bytes
from shardc.dialects.aten.python_numbers import is_python_number
from shardc.dialects.aten.schema import overload
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.budget.number_forward import number_of
from shardc.passes.budget.step_graph import ForwardOp, StepGraph, Storage
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.reading import Reading
from shardc.runtime.first_run import may_share

PARTS = 2
"""Number of runs of adjacent equal layers; equal ops of a run are decided together."""


@dataclass(frozen=True)
class Choices:
    """The graph of a step; ``views`` maps the number of an op to the numbers of its views."""

    graph: StepGraph
    views: dict[int, list[int]]

    def numbers(self, again: frozenset[int]) -> frozenset[int]:
        """Return the numbers of ops of the graph and of their views."""
        return again | {view for op in again for view in self.views.get(op, ())}


@dataclass
class _Memory:
    """Storage while the program is read. ``owner``: a forward op, or None."""

    size_bytes: int
    made: int
    owner: int | None
    forward_end: int
    last: int
    backward: list[int] = field(default_factory=list)
    readers: set[int] = field(default_factory=set)


def read_choices(module: ir.Module, calls: Sequence[str]) -> Choices:
    """Read the choices of a module at level 2 whose forward ops are numbered.

    ``calls``: for each op, by number, the call of a module that it belongs to, or "". Results of a module's
    call that other calls read are kept, so that a layer is recomputed only from its inputs.
    """
    mesh, program = Reading(module).sharded(level=2)
    return _Reader(program, mesh).read(calls)


class _Reader:
    def __init__(self, program: Program, mesh: Mesh) -> None:
        self._program, self._codec = program, ShardingCodec(program.module.context, mesh)
        self._memory: dict[int, _Memory] = {}
        """Storage by value; a view has that of its base, and arguments have none."""
        self._all: list[_Memory] = []
        self._work: dict[int, float] = {}
        self._targets: dict[int, list[str]] = defaultdict(list)
        self._sends: set[int] = set()
        self._same: dict[int, int] = {}
        """View -> the op that allocates its memory."""

    def read(self, calls: Sequence[str]) -> Choices:
        for position, node in enumerate(self._program.nodes):
            self._read(position, node)
        end = len(self._program.nodes)
        returned = {id(m) for v in self._program.returns if (m := self._memory.get(v)) is not None}
        for memory in self._all:
            if id(memory) in returned:
                memory.last, memory.owner = end, None
        return self._choices(calls, end)

    def _read(self, position: int, node: Node) -> None:
        phase, owner, is_view = phase_of(node.op), self._owner(node), self._is_view(node)
        for value in node.operands:
            memory = self._memory.get(value)
            if memory is None:
                continue
            memory.last = position
            if phase == "forward":
                memory.forward_end = position
                if owner not in (None, memory.owner) and not is_view:
                    memory.readers.add(owner)
            elif memory.owner is not None:
                memory.backward.append(position)
        shardings = [self._codec.read(a) for a in ir.ArrayAttr(node.op.attributes["dist.shardings"])]
        if is_view:
            source = self._memory.get(node.operands[0])
            if source is not None:
                self._memory.update(dict.fromkeys(node.results, source))
                number = number_of(node.op)
                if number is not None and source.owner is not None and number != source.owner:
                    self._same[number] = source.owner
            return
        for value, lies in zip(node.results, shardings, strict=True):
            type_ = self._program.types[value]
            size = prod(lies.local_shape(type_.shape)) * type_.dtype.itemsize
            memory = _Memory(size, position, owner, position, position)
            self._memory[value] = memory
            self._all.append(memory)
        if owner is not None:
            ways = prod(axis.size for axis in shardings[0].used) if shardings else 1
            self._work[owner] = self._work.get(owner, 0.0) + work_bytes(node.spec) / ways
            self._targets[owner].append(node.spec.target)
            if node.spec.target.startswith("dist.") and self._is_sent(node, shardings[0]):
                self._sends.add(owner)

    def _owner(self, node: Node) -> int | None:
        """Return the forward op that a node belongs to; for a reshard, the op that computed the value."""
        if phase_of(node.op) != "forward":
            return None
        number = number_of(node.op)
        if number is not None:
            return self._same.get(number, number)
        owners = (self._memory[v].owner for v in node.operands if v in self._memory)
        return next((owner for owner in owners if owner is not None), None)

    def _is_view(self, node: Node) -> bool:
        target = node.spec.target
        if target.startswith("dist.") or not node.operands or is_python_number(target):
            return False
        return may_share(overload(target))

    def _is_sent(self, node: Node, made: Sharding) -> bool:
        """Return whether a reshard communicates, that is, does more than slice."""
        maker = self._program.producer[node.operands[0]]
        if maker < 0:
            return False
        source = self._program.nodes[maker]
        attribute = ir.ArrayAttr(source.op.attributes["dist.shardings"])
        lies = self._codec.read(attribute[source.results.index(node.operands[0])])
        kept = all(new[: len(old)] == old for old, new in zip(lies.dims, made.dims, strict=True))
        return bool(lies.partial) or not kept

    def _choices(self, calls: Sequence[str], end: int) -> Choices:
        owned = [m for m in self._all if m.owner is not None]
        known = {memory.owner for memory in owned}
        storages = tuple(_storage(memory, known) for memory in sorted(owned, key=lambda m: m.made))
        kinds = _kinds(storages, calls, self._targets)
        given = _given_to_others(storages, calls)
        total = sum(self._work.values())
        ops = {
            op: ForwardOp(self._work[op] + (total if op in self._sends else 0.0), kinds[op], op in given)
            for op in dict.fromkeys(storage.op for storage in storages)
        }
        views: dict[int, list[int]] = defaultdict(list)
        for view, op in self._same.items():
            views[op].append(view)
        return Choices(StepGraph(ops, storages, tuple(self._base(end))), dict(views))

    def _base(self, end: int) -> list[int]:
        """Return the live bytes at each position; storages under decision count until their end in the
        forward.
        """
        changes = [0] * (end + 1)
        for memory in self._all:
            changes[memory.made] += memory.size_bytes
            last = memory.last if memory.owner is None else memory.forward_end
            if last < end:
                changes[last + 1] -= memory.size_bytes
        found, now = [], 0
        for change in changes[:end]:
            now += change
            found.append(now)
        return found


def _storage(memory: _Memory, known: Collection[int | None]) -> Storage:
    assert memory.owner is not None
    backward = (min(memory.backward), max(memory.backward)) if memory.backward else None
    readers = frozenset(memory.readers.intersection(known))
    return Storage(memory.owner, memory.size_bytes, memory.forward_end, backward, readers)


def _given_to_others(storages: Sequence[Storage], calls: Sequence[str]) -> set[int]:
    """Return the ops of marked calls whose results an op outside the call reads."""
    return {
        s.op for s in storages if calls[s.op] and any(calls[reader] != calls[s.op] for reader in s.readers)
    }


def _kinds(
    storages: Sequence[Storage], calls: Sequence[str], targets: dict[int, list[str]]
) -> dict[int, tuple[object, ...]]:
    """Return a kind for each op. Ops of one kind are decided together.

    They are the ops at one position in adjacent equal calls of modules. A position has at most PARTS kinds.
    """
    inside: dict[str, list[int]] = defaultdict(list)
    sizes: dict[int, list[int]] = defaultdict(list)
    for storage in storages:
        sizes[storage.op].append(storage.size_bytes)
    for op in sizes:
        inside[calls[op]].append(op)
    alike: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for call, ops in inside.items():
        if call:
            alike[tuple((*targets[op], *sizes[op]) for op in ops)].append(call)
    found: dict[int, tuple[object, ...]] = {op: (op,) for op in inside[""]}
    for same in alike.values():
        for number, call in enumerate(same):
            part = number * min(PARTS, len(same)) // len(same)
            for place, op in enumerate(inside[call]):
                found[op] = (same[0], part, place)
    return found
