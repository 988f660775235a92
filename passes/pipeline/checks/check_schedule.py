"""Check that a schedule can run: every action once, on one rank, after its dependences, without deadlock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.cost.pipeline import StageCost
from shardc.diagnostics.passes.pipeline import BadEviction, BadSchedule, ScheduleStuck, TooMuchMemory
from shardc.dialects.pipe.action import KINDS, OPTIMIZER, Action
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.eviction import LEAST_APART, Eviction, places
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.weight_versions import forward_weights
from shardc.passes.pipeline.ranks.transfers import place_transfers


def check_schedule(schedule: Schedule, micro_batches: int | None = None, *, trains: bool = True) -> None:
    """Check a schedule. Raises BadSchedule, which names the first wrong action and its problem, and
    BadEviction.

    ``micro_batches`` is the required number, counting slices; default: that of the schedule. ``trains``:
    whether there must be backward actions.
    """
    for action, problem in _problems(schedule, micro_batches, trains):
        raise BadSchedule(schedule=schedule.name, action=action, problem=problem)
    for eviction, problem in _wrong_evictions(schedule):
        raise BadEviction(eviction=eviction, problem=problem)


def _wrong_evictions(schedule: Schedule) -> Iterator[tuple[Eviction, str]]:
    """Yield evictions that cannot run, of a schedule that can run without them."""
    if not schedule.evictions:
        return
    place = places(schedule.orders)
    seen = set[tuple[int, int]]()
    for eviction in schedule.evictions:
        key = stage, micro_batch = eviction.stage, eviction.micro_batch
        if schedule.slices > 1 or schedule.changes_mathematics or len(schedule.routes) > 1:
            yield eviction, f"needs whole sequences, one route and one update, which {schedule.name} has not"
        if key not in place:
            yield (
                eviction,
                f"is of micro-batch {micro_batch} in stage {stage}, which no rank runs",
            )
        if key in seen:
            yield eviction, "is the second one of these activations"
        seen.add(key)
        if eviction.rank == schedule.rank_of[stage] or eviction.rank >= schedule.ranks:
            yield eviction, f"goes from rank {schedule.rank_of[stage]} of {schedule.ranks} to {eviction.rank}"
        forward, backward, _ = place[key]
        if backward - forward < LEAST_APART:
            yield eviction, f"leaves {backward - forward - 1} actions between forward and backward, not 2"
        if not eviction.accepted <= eviction.returned <= len(schedule.orders[eviction.rank]):
            yield eviction, "returns the activations before it receives them, or after its last action"
    try:
        place_transfers(schedule)
    except ScheduleStuck as error:
        yield schedule.evictions[0], f"or another one deadlocks at {error.fields['actions']}"


def check_memory(schedule: Schedule, costs: Sequence[StageCost], memory_limit_bytes: float) -> None:
    """Check that no rank holds more than ``memory_limit_bytes`` of activations at a time. Raises
    TooMuchMemory.

    ``costs`` has an entry for each stage. The error names the first action that exceeds the limit. A rank
    runs one action at a time, so durations do not matter.
    """
    for rank, order in enumerate(schedule.orders):
        held_bytes = 0.0
        for action in order:
            for more_bytes in costs[action.stage].held_bytes(action.kind):
                held_bytes += more_bytes
                if held_bytes > memory_limit_bytes:
                    raise TooMuchMemory(
                        schedule=schedule.name,
                        rank=rank,
                        action=action,
                        held=held_bytes,
                        cap=memory_limit_bytes,
                    )


def _problems(
    schedule: Schedule, micro_batches: int | None, trains: bool
) -> Iterator[tuple[Action | str, str]]:
    yield from _bad_reads(schedule)
    wanted = schedule.micro_batches if micro_batches is None else micro_batches
    if not wanted or wanted % schedule.slices:
        yield "it", f"has {wanted} micro-batches, of {schedule.slices} slices each"
    every = 1 if schedule.updates is None else schedule.updates.every
    if wanted % every:
        yield "it", f"updates weights after every {every} micro-batches, which do not divide {wanted}"
    place = {}
    for rank, order in enumerate(schedule.orders):
        for index, action in enumerate(order):
            if action in place:
                yield action, "occurs twice"
            if action.kind == OPTIMIZER:
                yield action, "is in an order, but a schedule's updates determine where optimizers run"
            if schedule.rank_of[action.stage] != rank:
                home = schedule.rank_of[action.stage]
                yield action, f"is on rank {rank}, but stage {action.stage} is on rank {home}"
            if action.micro_batch >= wanted:
                yield action, f"occurs, but there are {wanted} micro-batches"
            if action.stage not in schedule.route(action.micro_batch):
                yield action, f"is for a stage that micro-batch {action.micro_batch} does not go through"
            place[action] = rank, index
    yield from _missing(schedule, place, wanted, trains)
    yield from _stuck(schedule, place)
    for use in forward_weights(schedule):
        if use.version > use.made:
            problem = f"needs version {use.version} of its weights, but only {use.made} exist by then"
            yield use.action, problem


def _bad_reads(schedule: Schedule) -> Iterator[tuple[str, str]]:
    stages = list(range(len(schedule.reads)))
    if stages and ([*map(list, schedule.routes)] != [stages] or schedule.slices > 1 or schedule.updates):
        yield "it", f"has reads of {len(stages)} stages, but not one route of them, slices or updates"
    for stage, reads in enumerate(schedule.reads):
        if list(reads) != sorted({*reads} & {*range(stage)}):
            yield f"stage {stage}", f"reads {', '.join(map(str, reads))}, not earlier stages in order"


def _missing(
    schedule: Schedule, place: dict[Action, tuple[int, int]], micro_batches: int, trains: bool
) -> Iterator[tuple[Action, str]]:
    for micro_batch in range(micro_batches):
        for stage in schedule.route(micro_batch):
            kinds = {kind for kind in KINDS if Action(stage, kind, micro_batch) in place}  # type: ignore[arg-type]
            if "F" not in kinds:
                yield Action(stage, "F", micro_batch), "is missing"
            if "B" in kinds and kinds & {"I", "W"}:
                yield Action(stage, "B", micro_batch), "occurs beside a part of itself, I or W"
            if trains and "I" not in kinds and "B" not in kinds:
                yield Action(stage, "B", micro_batch), "is missing"
            if "I" in kinds and "W" not in kinds:
                gradient = Action(stage, "I", micro_batch)
                yield Action(stage, "W", micro_batch), f"is missing, but {gradient} occurs"


def _stuck(schedule: Schedule, place: dict[Action, tuple[int, int]]) -> Iterator[tuple[Action, str]]:
    """Simulate the schedule until no action can run; yield the remaining actions, which are in a deadlock."""
    needs = Dependences(schedule).needs
    done, at = set[Action](), [0] * schedule.ranks
    waiting: dict[Action, list[int]] = {}
    moving = list(range(schedule.ranks))
    while moving:
        rank = moving.pop()
        order = schedule.orders[rank]
        while at[rank] < len(order):
            action = order[at[rank]]
            missing = next((needed for needed in needs(action) if needed not in done), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(rank)
                break
            done.add(action)
            at[rank] += 1
            moving += waiting.pop(action, ())
    orders = enumerate(zip(schedule.orders, at, strict=True))
    heads = {rank: order[i] for rank, (order, i) in orders if i < len(order)}
    waits = {rank: next(n for n in needs(head) if n not in done) for rank, head in heads.items()}
    for rank, needed in waits.items():
        if place[needed][0] == rank:
            yield heads[rank], f"comes before {needed}, which it needs"
    for rank, needed in waits.items():
        other = place[needed][0]
        behind = f"at {heads[other]} for {waits[other]}"
        yield heads[rank], f"waits for {needed}, but rank {other} is stuck before that, {behind}"
