"""Locations of a running pipeline's parameters and buffers, for another program over the same tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.dist.tuples import packed
from shardc.dialects.pipe.action import Action, Collective, parse_action
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.passes.pipeline.stages.step_program import keys_of, made_from

HELD = ("param", "buffer")


@dataclass(frozen=True)
class Held:
    """A pipeline's schedule, and the locations of its parameters and buffers.

    ``ranks`` maps a parameter or buffer to the ranks that hold it, ``stages`` to the stages whose forward
    reads it, as positions in a route.
    """

    schedule: Schedule
    ranks: Mapping[str, tuple[int, ...]]
    stages: Mapping[str, tuple[int, ...]]


def read_held(module: ir.Module) -> Held:
    """Return the locations of the values that a pipeline's ranks hold."""
    op = find_schedule(module)
    assert op is not None, "a pipeline has a schedule"
    schedule = read_schedule(op)
    ranks: dict[str, dict[int, None]] = {}
    stages: dict[str, dict[int, None]] = {}
    for rank, function in enumerate(rank_functions(module)):
        block = function.regions[0].blocks[0]
        named = dict(zip(block.arguments, keys_of(function, "arg_attrs"), strict=True))
        names = {value: name for value, (role, name) in named.items() if role in HELD}
        for name in names.values():
            ranks.setdefault(name, {})[rank] = None
        for place, value in _read(block, schedule):
            if value in names:
                stages.setdefault(names[value], {})[place] = None
    return Held(schedule, _sorted(ranks), _sorted(stages))


def _read(block: ir.Block, schedule: Schedule) -> Iterator[tuple[int, ir.Value]]:
    """Yield pairs of a stage's position and a value on which its forward, or its gather, depends."""
    for op in (view.operation for view in block.operations):
        if op.name == "pipe.action":
            action = parse_action(op.attributes["action"].value)
            if isinstance(action, Collective) or action.kind == "F":
                place = _place(action, schedule)
                yield from ((place, value) for value in made_from(packed(list(op.operands)), _is_outside))


def _is_outside(value: ir.Value) -> bool:
    """Return whether an op outside the actions computes a value."""
    return isinstance(value, ir.OpResult) and not value.owner.operation.name.startswith("pipe.")


def _place(action: Action | Collective, schedule: Schedule) -> int:
    return next(route.index(action.stage) for route in schedule.routes if action.stage in route)


def _sorted(found: Mapping[str, Mapping[int, None]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(numbers)) for name, numbers in sorted(found.items())}
