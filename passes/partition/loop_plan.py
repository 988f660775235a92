"""Assignment of the ops of a flat rank program to time loops."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.dialects.aten.call import is_constant, target_name
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.dist.time_part import time_terms
from shardc.passes.partition.reshard_lower import EDGE_KIND

GATHERED = "dist.in_loop"
"""Attribute of ops that gather a parameter in each iteration."""

_FILLS = frozenset(("aten.full", "aten.ones", "aten.zeros"))


@dataclass
class LoopPlan:
    """Ops by loop, in program order: ``outside[s]`` run after ``s`` loops, ``inside[k]`` in loop ``k``."""

    outside: dict[int, list[ir.Operation]] = field(default_factory=lambda: defaultdict(list))
    inside: dict[int, list[ir.Operation]] = field(default_factory=lambda: defaultdict(list))
    loop_of: dict[ir.Value, int] = field(default_factory=dict)
    """First result of an op -> its loop. (The hash of an op changes with its attributes.)"""
    loops: int = 0


def plan_loops(block: ir.Block, codec: ShardingCodec, mesh: Mesh) -> LoopPlan:
    """Assign the ops of a function's body to loops.

    An op is inside if it selects an iteration's part of a value, computes a term of a sum over iterations, or
    reads a value from inside. Edges lead out. If an outside op is between two inside ops, these need two
    loops. Every op runs in the last possible loop, so that a forward pass is in the loop of its backward.
    Tensors of one number that only one loop reads are made in it.
    """
    ops = [o.operation for o in block.operations]
    body = [o for o in ops[:-1] if not is_constant(o)]
    number = {o.results[0]: i for i, o in enumerate(body)}
    readers = [_readers(o, number) for o in body]
    sources: list[list[int]] = [[] for _ in body]
    for i, users in enumerate(readers):
        for u in users:
            sources[u].append(i)
    inside = _inside(body, sources, readers, codec, mesh)
    latest = _latest(body, readers, inside, _count(sources, inside))
    _keep_terms(body, sources, inside, latest, codec, mesh)
    _fill_inside(body, sources, readers, inside, latest)
    plan = LoopPlan()
    for i, op in enumerate(body):
        if inside[i]:
            plan.inside[latest[i]].append(op)
            plan.loop_of[op.results[0]] = latest[i]
        else:
            plan.outside[latest[i]].append(op)
    plan.loops = 1 + max(plan.inside, default=-1)
    return plan


def _readers(op: ir.Operation, number: dict[ir.Value, int]) -> list[int]:
    """Return the numbers of the ops that read the results of ``op``, also through lists."""
    found: list[int] = []
    for result in op.results:
        for use in result.uses:
            owner = use.owner.operation
            if is_constant(owner):
                found.extend(_readers(owner, number))
            elif owner.results and owner.results[0] in number:
                found.append(number[owner.results[0]])
    return found


def _inside(
    body: list[ir.Operation],
    sources: list[list[int]],
    readers: list[list[int]],
    codec: ShardingCodec,
    mesh: Mesh,
) -> list[bool]:
    edges = [EDGE_KIND in op.attributes for op in body]
    # A term that is equal in all iterations is counted in each, and so is a part, such as zeros.
    starts = [
        _takes_iteration(op, codec, mesh)
        or any(_is_term(r, codec, mesh) for r in op.results)
        or any(edges[u] for u in users)
        for op, users in zip(body, readers, strict=True)
    ]
    inside = _behind(body, sources, starts)
    gathered = [GATHERED in op.attributes for op in body]
    if not any(gathered):
        return inside
    joined = _read_inside(sources, readers, inside, gathered)
    starts = [s or (g and j) for s, g, j in zip(starts, gathered, joined, strict=True)]
    return _behind(body, sources, starts)


def _behind(body: list[ir.Operation], sources: list[list[int]], starts: list[bool]) -> list[bool]:
    """Return the ops of ``starts`` and their direct and indirect readers up to edges, which are outside."""
    inside: list[bool] = []
    for op, reads, start in zip(body, sources, starts, strict=True):
        inside.append(EDGE_KIND not in op.attributes and (start or any(inside[s] for s in reads)))
    return inside


def _read_inside(
    sources: list[list[int]], readers: list[list[int]], inside: list[bool], gathered: list[bool]
) -> list[bool]:
    """Return, for each op, whether only inside ops read it, directly or through ops on only gathered
    values.
    """
    alone: list[bool] = []
    for i, reads in enumerate(sources):
        alone.append(gathered[i] or (bool(reads) and all(alone[s] for s in reads)))
    read = [False] * len(inside)
    for i in reversed(range(len(inside))):
        read[i] = all(inside[u] or (alone[u] and read[u]) for u in readers[i])
    return read


def _takes_iteration(op: ir.Operation, codec: ShardingCodec, mesh: Mesh) -> bool:
    """Return whether an op depends on the iteration of a time loop."""
    if op.name not in ("dist.slice", "dist.offset"):
        return False
    return any(mesh.is_time(a) for a in codec.read_axes(op.attributes["axes"]))


def _count(sources: list[list[int]], inside: list[bool]) -> int:
    """Return the number of loops that are needed; 0 if no op is inside."""
    stage: list[int] = []
    for i, reads in enumerate(sources):
        bounds = [stage[s] + (1 if inside[s] and not inside[i] else 0) for s in reads]
        stage.append(max(bounds, default=0))
    return 1 + max((stage[i] for i in range(len(stage)) if inside[i]), default=-1)


def _latest(body: list[ir.Operation], readers: list[list[int]], inside: list[bool], loops: int) -> list[int]:
    """Return, for each op, the last loop (or number of finished loops) at which its readers allow it to run.

    Outside ops on which no inside op depends run after all loops.
    """
    stage = [0] * len(body)
    for i in reversed(range(len(body))):
        bounds = [stage[u] - (1 if inside[i] and not inside[u] else 0) for u in readers[i]]
        stage[i] = min(bounds, default=loops - 1 if inside[i] else loops)
    return stage


def _keep_terms(
    body: list[ir.Operation],
    sources: list[list[int]],
    inside: list[bool],
    latest: list[int],
    codec: ShardingCodec,
    mesh: Mesh,
) -> None:
    """Keep ops on an iteration's terms in the loop that computes the terms, because passing terms on costs
    memory.

    Values that such an op reads from outside are then needed earlier, too.
    """
    for i, op in enumerate(body):
        if inside[i] and any(_is_term(v, codec, mesh) for v in op.operands):
            latest[i] = max(latest[s] for s in sources[i] if inside[s])
            todo = [i]
            while todo:
                reader = todo.pop()
                early = [s for s in sources[reader] if not inside[s] and latest[s] > latest[i]]
                for s in early:
                    latest[s] = latest[i]
                todo.extend(early)


def _fill_inside(
    body: list[ir.Operation],
    sources: list[list[int]],
    readers: list[list[int]],
    inside: list[bool],
    latest: list[int],
) -> None:
    """Let a tensor of one number be made in the loop that alone reads it, so that it does not live longer."""
    for i, op in enumerate(body):
        is_filled = op.name.startswith("torch.") and target_name(op) in _FILLS and not sources[i]
        loops = {latest[u] if inside[u] else None for u in readers[i]}
        if is_filled and not inside[i] and EDGE_KIND not in op.attributes and len(loops) == 1:
            inside[i] = None not in loops
            latest[i] = loops.pop() if inside[i] else latest[i]


def _is_term(value: ir.Value, codec: ShardingCodec, mesh: Mesh) -> bool:
    if not isinstance(value, ir.OpResult):
        return False
    shardings = value.owner.attributes.get("dist.shardings")
    return shardings is not None and bool(time_terms(codec.read(shardings[value.result_number]), mesh))
