"""Options and sizes that a schedule supports in a compiled step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.diagnostics.passes.pipeline import ChangesMathematics, OneRouteOnly, ScheduleNotYet, WrongStages
from shardc.dialects.location import source_line
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.stages.step_program import StepProgram

RECOMPUTES = "recomputes what they keep"


def check_options(
    schedule: Schedule,
    policies: str | Sequence[str],
    memory_limit_bytes: float,
    gather: str,
    *,
    apart: bool,
    balances: bool,
    stale_weights: bool,
) -> None:
    """Check that a step can be compiled for a schedule with these options.

    ``policies``, ``memory_limit_bytes``, ``gather``, ``balances`` and ``stale_weights`` are those of
    :func:`~shardc.passes.pipeline.pipe_cut.cut_into_stages`. ``apart``: micro-batches are separate programs.
    Raises ChangesMathematics, OneRouteOnly, ScheduleNotYet.
    """
    if schedule.changes_mathematics and not stale_weights:
        raise ChangesMathematics(schedule=schedule.name)
    if schedule.changes_mathematics and len(schedule.routes) > 1:
        raise OneRouteOnly(schedule=schedule.name, routes=len(schedule.routes))
    for why in _not_yet(schedule, policies, memory_limit_bytes, gather, apart, balances):
        raise ScheduleNotYet(schedule=schedule.name, why=why)


def check_sizes(schedule: Schedule, ranks: int, micro_batches: int, stages: int) -> None:
    """Check that a schedule is for so many ranks, micro-batches of whole sequences, and stages.

    Raises WrongStages.
    """
    sizes = {
        "ranks": (schedule.ranks, ranks),
        "micro-batches": (schedule.micro_batches, micro_batches * schedule.slices),
        "stages": (len(schedule.routes[0]), stages),
    }
    for what, (found, wanted) in sizes.items():
        if found != wanted:
            raise WrongStages(schedule=schedule.name, what=what, found=found, wanted=wanted)


def check_program(schedule: Schedule, program: StepProgram) -> None:
    """Check that the schedule supports outputs with rows of each micro-batch, and recomputed modules.

    Raises ScheduleNotYet.
    """
    if schedule.slices > 1 and program.originals:
        again = next(iter(program.originals))
        why = f"it cuts sequences into slices, and {RECOMPUTES}"
        raise ScheduleNotYet(schedule=schedule.name, why=why, where=source_line(again.owner.location))
    what = "cuts sequences into slices" if schedule.slices > 1 else "keeps old weights"
    if program.values.rows and (schedule.slices > 1 or schedule.changes_mathematics):
        where = source_line(program.values.rows[0].owner.location)
        why = f"it {what}, and an output has rows of each micro-batch"
        raise ScheduleNotYet(schedule=schedule.name, why=why, where=where)


def _not_yet(
    schedule: Schedule,
    policies: str | Sequence[str],
    memory_limit_bytes: float,
    gather: str,
    apart: bool,
    balances: bool,
) -> Iterator[str]:
    """Yield reasons why a schedule is not supported with these options.

    ``apart``: micro-batches are separate programs. ``balances``: activations are kept on other ranks.
    """
    sliced, stale = schedule.slices > 1, schedule.changes_mathematics
    also = {
        "splits their backward": any(action.kind in ("I", "W") for action in schedule.actions()),
        "has several routes": len(schedule.routes) > 1,
        "keeps old weights": stale,
        "runs micro-batches as separate programs": apart,
        RECOMPUTES: policies != "none" and set(policies) != {"none"},
    }
    yield from (f"it cuts sequences into slices, and {what}" for what in also if sliced and also[what])
    if balances:
        kinds = ("cuts sequences into slices", "keeps old weights", "has several routes")
        is_any = sliced, stale, len(schedule.routes) > 1
        for what in (kind for kind, found in zip(kinds, is_any, strict=True) if found):
            yield f"it {what}, and balance_activations=True moves whole micro-batches of one route"
    if apart and stale:
        yield "it keeps old weights, and micro-batches run as separate programs"
    if memory_limit_bytes and (sliced or stale):
        what = "slices of sequences" if sliced else "old weights"
        yield f"it holds {what}, which memory_limit_bytes does not count"
    if gather == "step" and (sliced or stale):
        what = "cuts sequences into slices" if sliced else "keeps old weights"
        yield f"it {what}, and gather='step' keeps parameters gathered"
    if gather == "step" and memory_limit_bytes:
        yield "memory_limit_bytes does not count parameters that gather='step' keeps gathered"
