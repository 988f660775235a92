"""Activations that stages keep for a micro-batch from forward to backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch_mlir import ir

from shardc.passes.manager.copy_ops import reads
from shardc.passes.optimize.chains import is_view
from shardc.passes.pipeline.stages.places import Assignment
from shardc.passes.pipeline.stages.recompute import is_cloned, of_micro_batch
from shardc.passes.pipeline.stages.stage_bodies import Stages, is_saved
from shardc.passes.pipeline.stages.step_program import StepProgram, made_from, size_bytes

_PARTS = ("torch.aten.slice.Tensor", "torch.aten.select.int", "dist.slice")


def evictable(assignment: Assignment, stages: Stages) -> dict[int, list[ir.Value]]:
    """Map each stage to the values that its backward reads of its forward: what an eviction sends.

    Views of parameters and of the batch stay, since freeing them saves nothing. ``assignment`` and ``stages``
    are those of the program, with recomputation.
    """
    return {
        index: [
            value
            for value in _read_of_forward(assignment, stages, index)
            if isinstance(_storage(assignment, value, index), ir.OpResult)
        ]
        for index in range(assignment.stages)
    }


def _read_of_forward(assignment: Assignment, stages: Stages, index: int) -> dict[ir.Value, None]:
    """Return the values of forward that the backward of stage ``index`` reads."""
    return dict.fromkeys(
        value
        for (stage, kind, _), body in stages.bodies.items()
        if stage == index and kind != "F"
        for value in body.inputs
        if _is_of_forward(assignment, value)
    )


def kept_bytes(
    program: StepProgram, assignment: Assignment, stages: Stages, policies: Sequence[str]
) -> list[int]:
    """Return, for each stage, the bytes of one micro-batch that live from its forward to its backward.

    These are values that its forward computes or receives, and that its backward reads or recomputes from.
    Views of one tensor count once; views of parameters and of the batch do not count. ``assignment`` and
    ``stages`` are those without recomputation.
    """
    found, data = [], of_micro_batch(program)
    for index, policy in enumerate(policies):
        read = _read_of_forward(assignment, stages, index)
        if policy != "none":
            read = _sources(
                assignment, read, lambda v, i=index, p=policy: is_cloned(assignment, v, i, p, data)
            )
        kept = dict.fromkeys(_storage(assignment, value, index) for value in read)
        found.append(sum(size_bytes(value) for value in kept if isinstance(value, ir.OpResult)))
    return found


def kept_before(program: StepProgram, assignment: Assignment, stages: Stages) -> list[int]:
    """Return what :func:`kept_bytes` would be without recomputation, of modules or of stages."""
    if not program.originals:
        return kept_bytes(program, assignment, stages, ("none",) * assignment.stages)
    forward = [_read_by_forward(assignment, index) for index in range(assignment.stages)]
    kept: list[set[ir.Value]] = [set() for _ in forward]
    for op in assignment.ops:
        place = assignment.place_of(op.results[0])
        if place is None or place[1] == "F" or op.results[0] in program.originals:
            continue
        for value in (program.originals.get(value, value) for value in reads(op)):
            made = assignment.place_of(value)
            is_free = value in forward[place[0]] and is_saved(value.owner.operation)
            if value not in program.weights and (is_free if made is None else made[1] == "F"):
                kept[place[0]].add(_storage(assignment, value, place[0]))
    return [sum(size_bytes(value) for value in of if isinstance(value, ir.OpResult)) for of in kept]


def _read_by_forward(assignment: Assignment, index: int) -> set[ir.Value]:
    """Return the free values that the forward of stage ``index`` reads."""
    ops = [op for op in assignment.ops if assignment.place_of(op.results[0]) == (index, "F")]
    values = made_from([value for op in ops for value in reads(op)], assignment.is_free)
    return set(filter(assignment.is_free, values))


def _sources(
    assignment: Assignment, read: Iterable[ir.Value], cloned: Callable[[ir.Value], bool]
) -> dict[ir.Value, None]:
    """Return the values of forward, not ``cloned``, from which ``read`` is recomputed."""
    # All others are arguments, or free values that each reader computes.
    is_made = lambda v: assignment.place_of(v) is not None  # noqa: E731
    values = made_from(read, lambda v: is_made(v) and cloned(v))
    return dict.fromkeys(v for v in values if is_made(v) and not cloned(v))


def _storage(assignment: Assignment, value: ir.Value, index: int) -> ir.Value:
    """Return the tensor of stage ``index``, or the argument, of which ``value`` is a view."""

    def is_there(view: ir.Value) -> bool:
        place = assignment.place_of(view)
        return place is None or place[0] >= index

    return resolved(value, is_there)


def resolved(value: ir.Value, goes_on: Callable[[ir.Value], bool] = lambda v: True) -> ir.Value:
    """Follow views that keep all elements back from ``value``, while ``goes_on`` holds."""
    while _is_view(value) and goes_on(value):
        value = value.owner.operands[0]
    return value


def _is_view(value: ir.Value) -> bool:
    if not isinstance(value, ir.OpResult):
        return False
    op = value.owner.operation
    return is_view(op) or op.name in _PARTS


def _is_of_forward(assignment: Assignment, value: ir.Value) -> bool:
    place = assignment.place_of(value)
    return place is None or place[1] == "F"
