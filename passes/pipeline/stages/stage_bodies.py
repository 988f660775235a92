"""Bodies of stages: operands and results of each kind of action, and values passed between stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.dialects.pipe.stage import stage
from shardc.dialects.pipe.stage_graph import StageGraph
from shardc.dialects.pipe.yield_op import yield_values
from shardc.passes.manager.copy_ops import Copier, reads
from shardc.passes.partition.form_loops import is_received
from shardc.passes.pipeline.stages.places import Assignment, Fold, Place
from shardc.passes.pipeline.stages.step_program import StepProgram, made_from, tensor
from shardc.passes.pipeline.stages.terms import linear_ops
from shardc.passes.pipeline.stages.token_slices import TokenSlices

Hops = dict[tuple[int, int], list[ir.Value]]
"""(stage, stage that it sends to) -> the values, in order."""
PARTS: dict[str, str] = {"F": "F", "B": "IW", "I": "I", "W": "W"}
"""Kind of action -> the parts of a stage that it runs."""


@dataclass
class StageBody:
    """The ops of one stage and kind of action.

    A body reads, in this order: ``inputs`` (values of the same micro-batch computed elsewhere), ``captures``
    (arguments of the loop's body that are the same for all micro-batches), ``gathered`` values (pairs of a
    value and its gathered form, once for all micro-batches), and the sums ``numbers``. It yields ``outputs``,
    then the new sums. It computes captured ``integers`` itself.
    """

    index: int
    kind: str
    ops: list[ir.Operation]
    folds: list[Fold]
    inputs: list[ir.Value] = field(default_factory=list)
    captures: list[ir.Value] = field(default_factory=list)
    integers: list[ir.Value] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    slice: int = 0
    """The number of its slice of tokens, if a schedule has several.

    The body then also reads ``earlier``, values of earlier slices, and ``rest_in``, gradients from later
    slices; it yields ``rest_out`` for the previous slice.
    """
    earlier: list[tuple[ir.Value, int]] = field(default_factory=list)
    rest_in: list[ir.Value] = field(default_factory=list)
    rest_out: list[ir.Value] = field(default_factory=list)
    gathered: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)

    @property
    def gathers(self) -> list[ir.Value]:
        """The gathered values, each once."""
        return list(dict.fromkeys(found for _, found in self.gathered))

    @property
    def numbers(self) -> list[int]:
        return list(dict.fromkeys(fold.number for fold in self.folds))


@dataclass
class Stages:
    """All bodies, by stage, kind and slice (0 for whole micro-batches), and which stages each stage reads.

    ``down[s, t]`` are the values that stage ``t`` gets from stage ``s``, which it reads, in forward.
    ``up[t, s]`` are those that ``s`` gets from ``t`` in backward. Both include values that a stage only
    forwards.
    """

    bodies: dict[tuple[int, str, int], StageBody]
    graph: StageGraph
    down: Hops
    up: Hops
    slices: TokenSlices | None = None

    def type(self, value: ir.Value, number: int) -> ir.Type:
        """Return the type of a value in slice ``number``."""
        return value.type if self.slices is None else self.slices.type(value, number)

    def argument_types(self, body: StageBody) -> list[ir.Type]:
        """Return the types of the values from other actions that a body reads."""
        found = [self.type(v, body.slice) for v in body.inputs]
        found += [self.type(v, number) for v, number in body.earlier]
        return found + [self.rest_type(v, body.slice) for v in body.rest_in]

    def rest_type(self, value: ir.Value, number: int) -> ir.Type:
        """Return the type of the gradient of keys or values of slices up to ``number`` from later slices."""
        found = tensor(value)
        assert found is not None and self.slices is not None
        shape = (*found.shape[:2], self.slices.starts[number + 1], *found.shape[3:])
        return ir.Type.parse(str(found.with_shape(shape)), value.context)


def stage_bodies(
    program: StepProgram,
    assignment: Assignment,
    kinds: Mapping[int, Iterable[str]],
    graph: StageGraph | None = None,
) -> Stages:
    """Return the bodies of all stages for the ``kinds`` of actions that a schedule has for each.

    ``graph``: which stages each stage reads, by which values are passed on. Default: those that it needs, or
    the one before it, if that is how the stages were found.
    """
    collector = _Collector(program, assignment)
    bodies = {
        (index, kind, 0): collector.body(index, kind)
        for index in range(assignment.stages)
        for kind in PARTS
        if kind in kinds[index]
    }
    _find_outputs(bodies, assignment)
    if graph is None:
        graph = assignment.graph if assignment.graph.is_chain else _graph(bodies, assignment)
    return Stages(bodies, graph, *between(bodies, assignment, graph))


class _Collector:
    def __init__(self, program: StepProgram, assignment: Assignment) -> None:
        self._program, self._assignment = program, assignment
        self._order = {op.results[0]: i for i, op in enumerate(assignment.ops)}
        self._by_place: dict[tuple[int, str], list[ir.Operation]] = {}
        for op in assignment.ops:
            place = assignment.place.get(op.results[0])
            if place is not None:
                self._by_place.setdefault(place, []).append(op)
        self._in_forward = {s: self._free_ops(self._reads(s, "F"), {}) for s in range(assignment.stages)}

    def body(self, index: int, kind: str) -> StageBody:
        saved = {} if kind == "F" else self._saved(index)
        free = self._free_ops(self._reads(index, kind), saved)
        ops = {op.results[0]: op for part in PARTS[kind] for op in self._by_place.get((index, part), ())}
        ops.update(free)
        ordered = sorted(ops.values(), key=lambda op: self._order[op.results[0]])
        body = StageBody(index, kind, ordered, self._folds(index, kind))
        made = {result for op in ordered for result in op.results}
        captures = self._program.captures
        read = dict.fromkeys([v for op in ordered for v in reads(op)] + self._left(index, kind))
        body.captures = [v for v in read if v in captures and tensor(v)]
        body.integers = [v for v in read if v in captures and not tensor(v)]
        body.inputs = [v for v in read if v not in captures and v not in made]
        return body

    def _folds(self, index: int, kind: str) -> list[Fold]:
        return [fold for fold in self._assignment.folds if is_of(fold.place, index, kind)]

    def _reads(self, index: int, kind: str) -> list[ir.Value]:
        ops = [op for part in PARTS[kind] for op in self._by_place.get((index, part), ())]
        return [v for op in ops for v in reads(op)] + self._left(index, kind)

    def _left(self, index: int, kind: str) -> list[ir.Value]:
        """Return the values of an action that are used after the micro-batches: terms of sums, and rows."""
        rows = [row.value for row in self._assignment.rows if is_of(row.place, index, kind)]
        return [fold.term for fold in self._folds(index, kind)] + rows

    def _free_ops(
        self, values: list[ir.Value], saved: Mapping[ir.Value, object]
    ) -> dict[ir.Value, ir.Operation]:
        """Return the free ops behind ``values``, by first result, without those whose results are
        ``saved``.
        """

        def is_new(value: ir.Value) -> bool:
            return self._assignment.is_free(value) and value.owner.results[0] not in saved

        ops = [value.owner.operation for value in made_from(values, is_new) if is_new(value)]
        return {op.results[0]: op for op in ops}

    def _saved(self, index: int) -> dict[ir.Value, ir.Operation]:
        """Return free ops of the forward whose results are kept for backward; none if the stage
        recomputes.
        """
        if self._assignment.recompute[index] != "none":
            return {}
        return {first: op for first, op in self._in_forward[index].items() if is_saved(op)}


def is_of(place: Place, index: int, kind: str) -> bool:
    """Return whether ``place`` belongs to the actions of ``kind`` of stage ``index``."""
    return place[0] == index and place[1] in PARTS[kind]


def is_saved(op: ir.Operation) -> bool:
    """Return whether the result of a free op is kept for backward without recomputation."""
    is_made = op.name not in ("dist.slice", "dist.offset") and tensor(op.results[0]) is not None
    return is_made and any(map(tensor, reads(op)))


def _find_outputs(bodies: Mapping[tuple[int, str, int], StageBody], assignment: Assignment) -> None:
    readers: dict[ir.Value, list[StageBody]] = {}
    for body in bodies.values():
        for value in body.inputs:
            readers.setdefault(value, []).append(body)
    for body in bodies.values():
        for result in (result for op in body.ops for result in op.results):
            found = readers.get(result, [])
            if assignment.is_free(result):
                found = [r for r in found if r.index == body.index and body.kind == "F"]
            if found:
                body.outputs.append(result)
        rows = [row.value for row in assignment.rows if is_of(row.place, body.index, body.kind)]
        body.outputs += [value for value in dict.fromkeys(rows) if value not in body.outputs]


def between(
    bodies: Mapping[tuple[int, str, int], StageBody], assignment: Assignment, graph: StageGraph
) -> tuple[Hops, Hops]:
    """Return the values that stages send to others, in forward and in backward."""
    down: dict[tuple[int, int], dict[ir.Value, None]] = {}
    up: dict[tuple[int, int], dict[ir.Value, None]] = {}
    for value, maker, reader in _passed(bodies, assignment):
        hops, found = (graph.down, down) if maker < reader else (graph.up, up)
        for hop in hops(maker, reader):
            found.setdefault(hop, {})[value] = None
    return {hop: list(values) for hop, values in down.items()}, {
        hop: list(values) for hop, values in up.items()
    }


def _graph(bodies: Mapping[tuple[int, str, int], StageBody], assignment: Assignment) -> StageGraph:
    """Return which stages each stage's forward reads, or needs so that backward can go the other way."""
    passed = _passed(bodies, assignment)
    return StageGraph.of(assignment.stages, ((min(pair), max(pair)) for _, *pair in passed))


def _passed(
    bodies: Mapping[tuple[int, str, int], StageBody], assignment: Assignment
) -> Iterator[tuple[ir.Value, int, int]]:
    """Yield each value that a stage makes for another one, with both."""
    for body in bodies.values():
        for value in body.inputs:
            place = assignment.place_of(value)
            if place is not None and place[0] != body.index:
                yield value, place[0], body.index


def write_bodies(program: StepProgram, stages: Stages, ip: ir.InsertionPoint) -> None:
    """Insert a ``pipe.stage`` for each body at ``ip`` in the module."""
    for body in stages.bodies.values():
        _write_body(program, body, ip)


def _write_body(program: StepProgram, body: StageBody, ip: ir.InsertionPoint) -> None:
    loc = body.ops[0].location if body.ops else program.loop.location
    sums = [program.carried[number] for number in body.numbers]
    arguments = [*body.inputs, *body.captures, *body.gathers, *sums]
    types = [v.type for v in arguments]
    block = stage(body.index, body.kind, types, sums=len(sums), loc=loc, ip=ip)
    end = ir.InsertionPoint(block)
    copier = Copier(end, zip(arguments, block.arguments, strict=True))
    for value, found in body.gathered:
        copier.values[value] = copier.values[found]
    for value in body.integers:
        copier.values[value] = copier.operand(program.captures[value])
    so_far = {number: copier.values[program.carried[number]] for number in body.numbers}
    folds: dict[ir.Value, list[Fold]] = {}
    for fold in body.folds:
        folds.setdefault(fold.term, []).append(fold)

    def add(terms: Iterable[ir.Value]) -> None:
        """Add the terms to their sums."""
        for fold in [fold for term in terms for fold in folds.pop(term, ())]:
            so_far[fold.number] = write_fold(program, fold, so_far[fold.number], copier)

    for op in body.ops:
        copier.copy(op)
        add(term for term in op.results if not is_received(term))  # at once, so that it is not kept
    add(list(folds))
    made = [copier.values[v] for v in body.outputs]
    yield_values([*made, *so_far.values()], loc=loc, ip=end)


def write_fold(program: StepProgram, fold: Fold, so_far: ir.Value, copier: Copier) -> ir.Value:
    """Copy the op that adds a term to the running sum ``so_far``, and return the new sum."""
    (whole,) = [v for v in reads(fold.op) if v != program.carried[fold.number]]
    term = copier.values[fold.term]
    for op in reversed(linear_ops(whole) if fold.term != whole else []):  # the term is a part of a sum
        term = Copier(copier.ip, {**copier.values, op.operands[0]: term}).copy(op).results[0]
    values = {**copier.values, program.carried[fold.number]: so_far, whole: term}
    return Copier(copier.ip, values).copy(fold.op).results[0]
