"""Assignment of every op of one micro-batch to a stage and a kind of action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch_mlir import ir

from shardc.dialects.pipe.stage_graph import StageGraph
from shardc.passes.manager.attributes import observed, phase_of
from shardc.passes.manager.copy_ops import reads
from shardc.passes.pipeline.cuts.balance import Forward, stage_of_places
from shardc.passes.pipeline.stages.places import Assignment, Fold, Row
from shardc.passes.pipeline.stages.recompute import recompute
from shardc.passes.pipeline.stages.sink_backward import sink_backward
from shardc.passes.pipeline.stages.step_program import StepProgram, body_ops
from shardc.passes.pipeline.stages.terms import terms


def forward_of(program: StepProgram) -> Forward:
    """Return the forward ops between which stages may be cut."""
    free = free_ops(program)
    folds = {_owner(v).results[0] for v in program.values.following}
    read: set[ir.Value] = set()
    ops: list[ir.Operation] = []
    for op in reversed(body_ops(program.body)):
        # Ops that passes inserted have no phase.
        is_forward = phase_of(op) == "forward" or not program.trains
        if is_forward or any(result in read for result in op.results):
            read.update(reads(op))
            ops.append(op)
    mine = [op for op in reversed(ops) if op.results[0] not in free and op.results[0] not in folds]
    return Forward(mine, program.roots, program.weights)


def assign_stages(
    program: StepProgram,
    forward: Forward,
    cuts: Sequence[int],
    policies: Sequence[str] = (),
    *,
    beside: bool = False,
) -> Assignment:
    """Return the places of all ops, with the forward cut before its ops with numbers ``cuts``.

    A backward op runs in the last stage that has the forward values and parameters that it reads, and not
    after the stages of its gradients. Backward ops of a stage that no earlier stage needs are W. ``policies``
    are of recomputation, one for each stage (default: none); they change the loop's body. ``beside``: stages
    may be beside each other. By default each needs the one before it.
    """
    found = Assignment(len(cuts) + 1, free=free_ops(program))
    found.recompute = policies or ("none",) * found.stages
    for op, stage in zip(forward.ops, stage_of_places(cuts, len(forward.ops)), strict=True):
        found.place[op.results[0]] = (stage, "F")
    found.graph = _graph(program, forward, found) if beside else StageGraph.chain(found.stages)
    folds = {_owner(v).results[0]: number for number, v in enumerate(program.values.following)}
    found.ops = [op for op in body_ops(program.body) if op.results[0] not in folds]
    _Backward(program, forward, found).place()
    _compute_weights(program, found)
    for number, value in enumerate(program.values.following):
        op = _owner(value)
        (term,) = [v for v in reads(op) if v != program.carried[number]]
        found.folds += [Fold(number, op, part, (0, "F")) for part in terms(term, op, found)]
    stacked = zip(program.values.rows, program.values.stacked, program.stack_dims, strict=False)
    found.rows = [Row(value, result, dim, (0, "F")) for value, result, dim in stacked]
    _drop_unread(found)
    sink_backward(found)
    recompute(program, found, found.recompute)
    _drop_unread(found)
    _split_backward(found)
    found.folds = [Fold(f.number, f.op, f.term, found.place_of(f.term) or (0, "F")) for f in found.folds]
    found.rows = [replace(row, place=found.place_of(row.value) or (0, "F")) for row in found.rows]
    return found


def _owner(value: ir.Value) -> ir.Operation:
    return value.owner.operation


def free_ops(program: StepProgram) -> set[ir.Value]:
    """Return the first results of ops that depend on no parameter."""
    bound = {*(v for v in program.captures if program.roots.get(v)), *program.carried}
    free: set[ir.Value] = set()
    for op in body_ops(program.body):
        if any(v in bound for v in reads(op)):
            bound.update(op.results)
        else:
            free.add(op.results[0])
    return free


def _graph(program: StepProgram, forward: Forward, found: Assignment) -> StageGraph:
    """Return which stages the forward of each stage reads. Each computes what it reads of weights."""
    edges = set[tuple[int, int]]()
    for op in forward.ops:
        stage, _ = found.place[op.results[0]]
        made = (found.place_of(value) for value in reads(op) if value not in program.weights)
        edges.update((place[0], stage) for place in made if place is not None and place[0] != stage)
    return StageGraph.of(found.stages, edges)


class _Backward:
    """Search for the stages of all ops that are not forward."""

    def __init__(self, program: StepProgram, forward: Forward, found: Assignment) -> None:
        self._found, self._originals = found, program.originals
        self._roots = {**program.roots, **program.weights}
        self._before = found.graph.before
        self._read: dict[ir.Value, frozenset[int]] = {}
        self._homes: dict[str, set[int]] = {}
        for op in forward.ops:
            stage, _ = found.place[op.results[0]]
            for value in reads(op):
                self._note(value, stage)
                for name in self._roots.get(value, ()):
                    self._homes.setdefault(name, set()).add(stage)

    def _note(self, value: ir.Value, stage: int) -> None:
        """Record that the forward of ``stage`` reads a value and, if the value is free, its operands."""
        known = self._read.get(value, frozenset())
        if stage in known:
            return
        self._read[value] = self._found.graph.between({*known, stage})
        if self._found.is_free(value):
            for operand in reads(value.owner.operation):
                self._note(operand, stage)

    def place(self) -> None:
        found = self._found
        left = [
            op for op in found.ops if op.results[0] not in found.place and op.results[0] not in found.free
        ]
        later = {} if found.graph.is_chain else self._later(left)
        for op in left:
            found.place[op.results[0]] = (self._stage(op, later.get(op.results[0], frozenset())), "I")

    def _later(self, ops: Sequence[ir.Operation]) -> dict[ir.Value, frozenset[int]]:
        """Return, for each op, the stages whose forward its result is for: those of the later ops that only
        one stage can run.
        """
        found: dict[ir.Value, frozenset[int]] = {}
        for op in reversed(ops):
            wanted = found.get(op.results[0], frozenset())
            at_hand, at_home = self._stages(op)
            able = [stage for stage in range(self._found.stages) if at_hand(stage) and at_home(stage)]
            passed = wanted.union(able) if len(able) == 1 else wanted
            for value in reads(op):
                if isinstance(value, ir.OpResult):
                    first = value.owner.results[0]
                    found[first] = found.get(first, frozenset()) | passed
        return found

    def _stages(self, op: ir.Operation) -> tuple[Callable[[int], bool], Callable[[int], bool]]:
        """Return which stages have the forward values that an op reads, and which the parameters."""
        found, seen = self._found, list[frozenset[int]]()
        for value in reads(op):
            first = self._originals.get(value, value)
            place, read = found.place_of(value), self._read.get(first, frozenset())
            if place is not None and place[1] == "F":
                seen.append(found.graph.between({*read, place[0]}))
            elif found.is_free(value) and read:
                seen.append(read)
        names = [*(n for v in reads(op) for n in self._roots.get(v, ())), *_parameters(op)]
        homes = [self._homes[n] for n in names if n in self._homes]
        return lambda s: all(s in stages for stages in seen), lambda s: all(s in home for home in homes)

    def _stage(self, op: ir.Operation, later: frozenset[int]) -> int:
        """Return the last stage that has all operands, else the last that has the parameters.

        What forward has computed before is computed again in the same stage. Of stages beside each other it
        is one that stages ``later``, for which the result is, can read.
        """
        found = self._found
        places = [place for v in reads(op) if (place := found.place_of(v)) is not None]
        gradients = [self._before[stage] for stage, kind in places if kind != "F"]
        most = frozenset(range(found.stages))
        options = sorted(most.intersection(*gradients), reverse=True)
        if not options:  # gradients of stages beside each other
            options = list(range(min(map(max, gradients)), -1, -1))
        if (stage := self._stage_before(op)) in options:
            return stage
        at_hand, at_home = self._stages(op)
        able = [stage for stage in options if later <= self._before[stage]] or options
        rules = (lambda s: at_hand(s) and at_home(s), at_home, at_hand)
        chosen = (
            stage for is_right in rules for stages in (able, options) for stage in stages if is_right(stage)
        )
        return next(chosen, options[0])

    def _stage_before(self, op: ir.Operation) -> int | None:
        """Return the stage whose forward computes the same as ``op``; None if none or each could."""
        first = op.results[0]
        original = None if first in self._roots else self._originals.get(first)
        place = None if original is None else self._found.place_of(original)
        return place[0] if place is not None and place[1] == "F" else None


def _compute_weights(program: StepProgram, found: Assignment) -> None:
    """Let each stage compute what it reads of weights, rather than receive it for each micro-batch."""
    readers: dict[ir.Value, set[int]] = {}
    for op in reversed(found.ops):
        place = found.place_of(op.results[0])
        if place is None:
            continue
        stages = {place[0]}
        if op.results[0] in program.weights:
            read = set[int]().union(*(readers.get(result, set()) for result in op.results))
            if read - stages:
                stages = read
                found.free.add(op.results[0])
                del found.place[op.results[0]]
        for value in reads(op):
            readers.setdefault(value, set()).update(stages)


def _parameters(op: ir.Operation) -> list[str]:
    """Return the parameters whose gradients an op computes."""
    names = [name.removeprefix("own-") for name, _ in observed(op)]
    return [name.removeprefix("grad:") for name in names if name.startswith("grad:")]


def _drop_unread(found: Assignment) -> None:
    """Drop ops without readers, because sums were split or results are recomputed."""
    read = {fold.term for fold in found.folds} | {row.value for row in found.rows}
    kept: list[ir.Operation] = []
    for op in reversed(found.ops):
        if any(result in read for result in op.results):
            read.update(reads(op))
            kept.append(op)
    found.ops = kept[::-1]


def _split_backward(found: Assignment) -> None:
    """Change backward ops that no earlier stage needs to W."""
    needed: set[ir.Value] = set()
    for op in reversed(found.ops):
        place = found.place.get(op.results[0])
        if place is None:
            continue
        early = any(result in needed for result in op.results)
        if place[1] != "F" and not early:
            found.place[op.results[0]] = (place[0], "W")
        for value in reads(op):
            made = found.place_of(value)
            if made is not None and made[1] != "F" and (made[0] > place[0] or early):
                needed.add(value)
