"""Check that ranks' programs follow the schedule: actions, their bodies and operands, and messages."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import NoReturn

from torch_mlir import ir

from shardc.diagnostics.dialects.levels import RankProgramBroken
from shardc.diagnostics.passes.pipeline import BadAction
from shardc.dialects.pipe.action import OPTIMIZER, Action, Collective, Transfer, parse_action, parse_step
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.dialects.pipe.stage import stage_name
from shardc.dialects.pipe.weight_versions import forward_weights, group_ends
from shardc.passes.pipeline.checks.check_collectives import check_collectives
from shardc.passes.pipeline.checks.check_messages import Refuse, check_messages
from shardc.passes.pipeline.checks.rank_events import Event, read_events, sums_of_stages


def check_rank_programs(module: ir.Module) -> None:
    """Check the programs of a pipeline's ranks, at level 3 or 4. A module without a pipeline passes.

    Raises RankProgramBroken, and BadCollective for collectives in a wrong place.
    """
    op = find_schedule(module)
    if op is None:
        return
    schedule, events = read_schedule(op), read_events(module)
    check_events(schedule, events, sums_of_stages(module))
    rows = [[parse_action(event.label) for event in row if event.kind == "action"] for row in events]
    steps = [[step for step in row if getattr(step, "kind", "") != OPTIMIZER] for row in rows]
    check_collectives(schedule, tuple(map(tuple, steps)))


def check_events(schedule: Schedule, ranks: Sequence[Sequence[Event]], stages: Collection[str]) -> None:
    """Check the events of the ranks of ``schedule``; ``stages`` are the symbols of its bodies.

    Raises RankProgramBroken.
    """

    def refuse(rank: int, problem: str, event: Event | None) -> NoReturn:
        where = None if event is None else event.where
        raise RankProgramBroken(rank=rank, schedule=schedule.name, problem=problem, where=where)

    if len(ranks) != schedule.ranks:
        refuse(len(ranks), f"there are programs of {len(ranks)} ranks, not of {schedule.ranks}", None)
    for rank, events in enumerate(ranks):
        _RankChecker(schedule, rank, stages, refuse).check(events)
    check_messages(ranks, refuse)


class _RankChecker:
    """Checker of one rank's events against the schedule."""

    def __init__(self, schedule: Schedule, rank: int, stages: Collection[str], refuse: Refuse) -> None:
        self._schedule, self._rank, self._stages, self._refuse = schedule, rank, stages, refuse
        self._versions = {
            (u.action.stage, u.action.micro_batch): u.version for u in forward_weights(schedule)
        }
        self._made_by: dict[Hashable, Action] = {}
        """Value -> the action that computed it, or for which it was received."""

    def check(self, events: Sequence[Event]) -> None:
        self._check_order([event for event in events if event.kind == "action"])
        for event in events:
            action = _action(event.label)
            if event.kind == "action":
                self._check_body(event, parse_action(event.label))
            if event.kind == "wait" and action and self._schedule.rank_of.get(action.stage) != self._rank:
                self._refuse(self._rank, f"it receives {action}, which is not its own", event)
            action = action or _evicted(event.label)
            if action is not None and action.kind != OPTIMIZER:
                for value in event.reads:
                    self._check_value(event, action, self._made_by.get(value))
            for value in event.makes:
                self._made_by.pop(value, None)
                if action is not None:
                    self._made_by[value] = action

    def _check_order(self, events: Sequence[Event]) -> None:
        """Check that the actions are those of the schedule, in its order, with optimizers after their
        groups.
        """
        found = [(event, action) for event in events if (action := _action(event.label))]
        for pair, wanted in itertools.zip_longest(found, self._wanted()):
            event, action = pair or (None, None)
            if action != wanted:
                runs, there = action or "nothing more", wanted or "nothing more"
                self._refuse(self._rank, f"it runs {runs} where the schedule has {there}", event)

    def _wanted(self) -> Iterator[Action]:
        ends = group_ends(self._schedule)
        for action in self._schedule.orders[self._rank]:
            yield action
            for group in ends.get(action, ()):
                if stage_name(self._place(action), OPTIMIZER) in self._stages:
                    yield Action(action.stage, OPTIMIZER, group)

    def _place(self, action: Action | Collective) -> int:
        """Return the position of the stage in its route, which is the index of its bodies."""
        return next(route.index(action.stage) for route in self._schedule.routes if action.stage in route)

    def _check_body(self, event: Event, action: Action | Collective) -> None:
        """Check that the body has the label's stage, kind and slice, and runs for its micro-batch."""
        number, part = 0, 0
        if isinstance(action, Action):
            number = action.micro_batch
            part = 0 if action.kind == OPTIMIZER else number % self._schedule.slices
        body = stage_name(self._place(action), action.kind, part)
        if event.body != body:
            self._refuse(self._rank, f"{action} runs {event.body}, not {body}", event)
        if event.number not in (None, number // self._schedule.slices):
            self._refuse(self._rank, f"{action} runs {body} for micro-batch {event.number}", event)
        version = self._version(action)
        if event.version not in (None, version):
            self._refuse(self._rank, f"{action} says it reads version {event.version}, not {version}", event)

    def _version(self, action: Action | Collective) -> int | None:
        """Return the version of the weights that the action must read."""
        if isinstance(action, Action) and action.kind == OPTIMIZER:
            return action.micro_batch
        return self._versions.get((action.stage, action.micro_batch or 0))

    def _check_value(self, event: Event, reader: Action, maker: Action | None) -> None:
        """Check that an operand belongs to the same micro-batch, or to the right version of the weights."""
        if maker is None:
            return
        slices = self._schedule.slices if event.kind == "action" else 1
        what = f"the {event.kind} of {reader}" if event.kind != "action" else str(reader)
        if maker.kind == OPTIMIZER:
            if event.kind != "action" or maker.micro_batch + 1 != self._version(reader):
                self._refuse(self._rank, f"{what} takes the weights that {maker} made", event)
        elif maker.micro_batch // slices != reader.micro_batch // slices:
            self._refuse(self._rank, f"{what} takes a value of {maker}, another micro-batch's", event)
        elif reader.kind == "F" and maker.kind != "F":
            self._refuse(self._rank, f"{what} takes a value of {maker}, which is not a forward", event)


def _evicted(label: str) -> Action | None:
    """Return the forward whose activations a message carries; None for another message."""
    try:
        step = parse_step(label)
    except BadAction:
        return None
    if not isinstance(step, Transfer) or not step.evicts:
        return None
    return Action(step.stage, "F", step.micro_batch)


def _action(label: str) -> Action | None:
    """Return the action that a label or tag names; None if it names a collective, a sum or a value."""
    try:
        return Action.parse(label)
    except BadAction:
        return None
