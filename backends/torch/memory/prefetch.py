"""Prefetching: gathers of a block's arguments (sharded parameters) start ahead of their first use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.torch.kernels import KERNEL
from shardc.backends.torch.step import Step
from shardc.cost.memory import PREFETCH_BYTES
from shardc.dialects.aten.types import read_type
from shardc.passes.manager.attributes import phase_of
from shardc.passes.partition.storage import VIEWS

PREPARING = VIEWS | {"aten.cat", "aten._to_copy"}
"""Ops that compute a gather's operand: views, buckets of parameters, casts, or a kernel of these."""


@dataclass
class _Gather:
    """Gather with the steps that compute its operand from arguments; first needed at ``first``."""

    steps: list[int]
    first: int
    size_bytes: int
    phase: str


def prefetch(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with gathers moved up, at most to where an earlier one of the same phase is needed.

    The gathers keep their order. So computation and communication overlap, and prefetched bytes stay below
    ``PREFETCH_BYTES``.
    """
    moved: dict[int, list[int]] = {}
    gathers = list(_gathers(steps))
    for number, gather in enumerate(gathers):
        place, size_bytes = gather.steps[-1], 0
        for i in range(number, 0, -1):
            size_bytes += gathers[i].size_bytes
            if size_bytes > PREFETCH_BYTES or gathers[i - 1].phase != gather.phase:
                break
            place = min(place, gathers[i - 1].first)
        moved.setdefault(place, []).extend(gather.steps)
    gone = {i for chosen in moved.values() for i in chosen}
    order = [
        i for place in range(len(steps)) for i in (*moved.get(place, ()), *([] if place in gone else [place]))
    ]
    return [steps[i] for i in order]


def _gathers(steps: Sequence[Step]) -> Iterator[_Gather]:
    made = {value: i for i, step in enumerate(steps) for value in step.results}
    readers: dict[ir.Value, list[int]] = {}
    for i, step in enumerate(steps):
        for value in step.operands:
            readers.setdefault(value, []).append(i)
    for i, step in enumerate(steps):
        if step.name == "dist.all_gather":
            chosen = _with_operand(i, steps, made, readers)
            users = readers.get(step.results[0])
            type_ = read_type(step.results[0].type)
            if chosen and users and type_ is not None:
                yield _Gather(sorted(chosen), users[0], type_.size_bytes, phase_of(step.op))


def _with_operand(
    number: int, steps: Sequence[Step], made: dict[ir.Value, int], readers: dict[ir.Value, list[int]]
) -> set[int]:
    """Return a gather and the steps only it needs; empty if these read values computed in the block."""
    chosen, todo = {number}, [number]
    while todo:
        for value in steps[todo.pop()].operands:
            producer = made.get(value)
            if producer is None:
                continue
            if not _prepares(steps[producer]) or not all(
                chosen.issuperset(readers.get(v, ())) for v in steps[producer].results
            ):
                return set()
            chosen.add(producer)
            todo.append(producer)
    return chosen


def _prepares(step: Step) -> bool:
    return step.call.spec.target in PREPARING if step.call is not None else step.name == KERNEL
