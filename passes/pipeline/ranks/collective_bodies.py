"""Bodies of collectives between actions: ops that gather a stage's parameters or reduce its gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.dialects.dist.collectives.names import COLLECTIVES
from shardc.dialects.pipe.action import CollectiveKind
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.stage import stage
from shardc.dialects.pipe.yield_op import yield_values
from shardc.passes.manager.copy_ops import Copier, reads
from shardc.passes.pipeline.stages.places import Fold
from shardc.passes.pipeline.stages.stage_bodies import StageBody, Stages
from shardc.passes.pipeline.stages.step_program import StepProgram, tensor


@dataclass
class CollectiveBody:
    """The ``ops`` of a collective, in program order, which compute ``makes`` from ``reads``.

    ``reads`` are arguments of the loop's body (UNSHARD), or sums over micro-batches (REDUCE_GRAD).
    """

    index: int
    kind: CollectiveKind
    ops: list[ir.Operation] = field(default_factory=list)
    reads: list[ir.Value] = field(default_factory=list)
    makes: list[ir.Value] = field(default_factory=list)


def find_reductions(
    program: StepProgram, folds: Sequence[Fold], schedule: Schedule, returned: Iterable[ir.Value]
) -> dict[int, CollectiveBody]:
    """Return, by stage, the communication after the micro-batches that reads only the stage's own gradients.

    Empty if a schedule updates between its actions, or holds parameters twice, because their gradients are
    summed first.
    """
    if schedule.updates is not None or len(schedule.routes) > 1:
        return {}
    stages: dict[ir.Value, set[int]] = {}
    for number, value in enumerate(program.values.carried):
        places = {fold.place for fold in folds if fold.number == number}
        if all(kind != "F" for _, kind in places):
            stages[value] = {index for index, _ in places}
    after = [op for op in program.outside if not op.is_before_in_block(program.loop)]
    home: dict[ir.Value, int] = {v: min(found) for v, found in stages.items() if len(found) == 1}
    for op in after:
        read = list(reads(op))
        homes = {home[v] for v in read if v in home}
        if len(homes) == 1 and all(v in home for v in read):
            home.update(dict.fromkeys(op.results, homes.pop()))
    bodies: dict[int, CollectiveBody] = {}
    needed: set[ir.Value] = set()
    for op in reversed(after):
        mine = len(op.results) > 0 and op.results[0] in home
        if mine and (op.name in COLLECTIVES or any(result in needed for result in op.results)):
            needed.update(reads(op))
            body = home[op.results[0]]
            bodies.setdefault(body, CollectiveBody(body, "REDUCE_GRAD")).ops.append(op)
    for body in bodies.values():
        body.ops.reverse()
    _find_edges(bodies.values(), program.outside, returned)
    return dict(sorted(bodies.items()))


def _find_edges(
    bodies: Iterable[CollectiveBody], outside: Iterable[ir.Operation], returned: Iterable[ir.Value]
) -> None:
    """Find what each body reads, and which of its results other ops read."""
    body_of = {op.results[0]: body.index for body in bodies for op in body.ops}
    readers: dict[ir.Value, set[int | None]] = {value: {None} for value in returned}
    for op in outside:
        reader = body_of.get(op.results[0]) if len(op.results) else None
        for value in reads(op):
            readers.setdefault(value, set()).add(reader)
    for body in bodies:
        made = [result for op in body.ops for result in op.results]
        own = set(made)
        body.reads = list(dict.fromkeys(v for op in body.ops for v in reads(op) if v not in own))
        body.makes = [result for result in made if readers.get(result, set()) - {body.index}]


def hoist_gathers(program: StepProgram, stages: Stages) -> dict[int, CollectiveBody]:
    """Remove the gathers of parameters from the bodies of stages, and return them by stage.

    A stage then gathers once, not for every micro-batch and again in backward. A gather whose result another
    stage reads, too, is not moved.
    """
    readers: dict[ir.Value, set[int]] = {}
    for body in stages.bodies.values():
        for value in body.inputs:
            readers.setdefault(value, set()).add(body.index)
    found: dict[int, CollectiveBody] = {}
    for index in sorted({body.index for body in stages.bodies.values()}):
        bodies = [body for body in stages.bodies.values() if body.index == index]
        shared = {v for v, by in readers.items() if by != {index}}
        hoisted = _hoisted(program, bodies, shared)
        if hoisted:
            found[index] = _hoist(index, bodies, hoisted)
    return found


def _hoisted(
    program: StepProgram, bodies: Sequence[StageBody], shared: set[ir.Value]
) -> dict[ir.Value, ir.Operation]:
    """Return the ops of ``bodies`` that gather parameters, with the ops that they depend on, by first
    result.
    """
    ops = {op.results[0]: op for body in bodies for op in body.ops}
    fixed = {v for v in program.captures if program.roots[v] and tensor(v)}
    for first, op in ops.items():
        if all(v in fixed for v in reads(op)) and any(True for _ in reads(op)):
            fixed.update(op.results)
        elif first in fixed:
            fixed.discard(first)
    found: dict[ir.Value, ir.Operation] = {}
    needed: set[ir.Value] = set()
    for first, op in reversed(ops.items()):
        is_gather = op.name in COLLECTIVES or any(result in needed for result in op.results)
        if first in fixed and is_gather and not any(result in shared for result in op.results):
            found[first] = op
            needed.update(reads(op))
    return dict(reversed(found.items()))


def _hoist(
    index: int, bodies: Sequence[StageBody], hoisted: Mapping[ir.Value, ir.Operation]
) -> CollectiveBody:
    made = CollectiveBody(index, "UNSHARD")
    same: dict[ir.Value, ir.Value] = {}
    """Value -> the representative of equal values."""
    seen: dict[object, list[ir.Value]] = {}
    for op in hoisted.values():
        key = _key(op, same)
        results = seen.setdefault(key, list(op.results))
        same.update(zip(op.results, results, strict=True))
        if results == list(op.results):
            made.ops.append(op)
    read: dict[ir.Value, None] = {}
    for body in bodies:
        body.ops = [op for op in body.ops if op.results[0] not in hoisted]
        body.outputs = [v for v in body.outputs if v not in same]
        wanted = dict.fromkeys([v for op in body.ops for v in reads(op)] + [fold.term for fold in body.folds])
        body.gathered = [(v, same[v]) for v in wanted if v in same]
        body.captures = [v for v in body.captures if v in wanted]
        body.inputs = [v for v in body.inputs if v not in same]
        read.update(dict.fromkeys(v for _, v in body.gathered))
    inside = {result for op in made.ops for result in op.results}
    made.reads = list(dict.fromkeys(v for op in made.ops for v in reads(op) if v not in inside))
    made.makes = list(read)
    return made


def _key(op: ir.Operation, same: Mapping[ir.Value, ir.Value]) -> object:
    """Return a key that is equal for ops with equal results."""
    attributes = tuple((name, str(a)) for name, a in op.attributes.items() if not name.startswith("dist."))
    operands = tuple(same.get(v, v) if tensor(v) else str(v) for v in op.operands)
    return op.name, attributes, operands, tuple(str(v.type) for v in op.results)


def write_collective(program: StepProgram, body: CollectiveBody, ip: ir.InsertionPoint) -> None:
    """Insert the ``pipe.stage`` of a collective at ``ip`` in the module."""
    loc = body.ops[0].location
    block = stage(body.index, body.kind, [v.type for v in body.reads], loc=loc, ip=ip)
    end = ir.InsertionPoint(block)
    copier = Copier(end, zip(body.reads, block.arguments, strict=True))
    for op in body.ops:
        copier.copy(op)
    yield_values([copier.values[v] for v in body.makes], loc=loc, ip=end)
