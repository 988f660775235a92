"""Cuts under a memory limit for each device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shardc.cost.memory import RankMemory
from shardc.diagnostics.passes.pipeline import NoCutFits
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.cuts.balance import Forward
from shardc.passes.pipeline.cuts.stage_memory import held_by_ranks, stage_memory
from shardc.passes.pipeline.schedules.balance_activations import evict_within
from shardc.passes.pipeline.stages.activations import kept_bytes
from shardc.passes.pipeline.stages.assign_stages import assign_stages
from shardc.passes.pipeline.stages.keep_sent import keep_sent, undo
from shardc.passes.pipeline.stages.stage_bodies import stage_bodies
from shardc.passes.pipeline.stages.step_program import StepProgram

TRIES = (1.0, 0.95, 0.9, 0.8, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 2.0)
"""Limits for the estimate, as fractions of the true limit, since the estimate's error depends on the
model.
"""


def fit_memory(
    program: StepProgram,
    forward: Forward,
    schedule: Schedule,
    policies: Sequence[str],
    kinds: Mapping[int, Iterable[str]],
    memory_limit_bytes: float,
    balances: bool = False,
    named: Sequence[int] = (),
) -> list[int]:
    """Return the cuts with the fastest slowest stage under ``memory_limit_bytes`` for each device.

    :func:`held_by_ranks` measures memory. ``balances``: whether ranks may keep activations on others, as
    :func:`evict_within` chooses. ``named`` are the only cuts to try. The search uses an estimate
    (dynamic programming, each stage with its share of its rank's memory), and measures what it finds. Raises
    NoCutFits, with the nearest of the cuts tried, and TooManyStages.
    """
    options = [list(named)] if named else _options(program, forward, schedule, policies, memory_limit_bytes)
    tried: dict[tuple[int, ...], RankMemory] = {}
    for cuts in options:
        if tuple(cuts) not in tried:
            changes = keep_sent(program, forward, cuts)
            assignment = assign_stages(program, forward, cuts)
            bodies = stage_bodies(program, assignment, kinds)
            kept = kept_bytes(program, assignment, bodies, policies)
            undo(changes)
            ranks = held_by_ranks(program, bodies, kept, schedule)
            if balances:
                state = [held.state_bytes for held in ranks]
                balanced = evict_within(schedule, kept, state, memory_limit_bytes)
                ranks = held_by_ranks(program, bodies, kept, balanced)
            most = tried[tuple(cuts)] = max(ranks, key=lambda held: (held.total_bytes, -held.rank))
            if most.total_bytes <= memory_limit_bytes and len(tried) == 1:
                break  # the fastest of all
    fitting = [cuts for cuts, held in tried.items() if held.total_bytes <= memory_limit_bytes]
    if fitting:
        return list(min(fitting, key=lambda cuts: (forward.slowest(cuts), cuts)))
    nearest, held = min(tried.items(), key=lambda item: (item[1].total_bytes, item[0]))
    raise NoCutFits(
        stages=len(nearest) + 1,
        cap=memory_limit_bytes,
        least=held.total_bytes,
        rank=held.rank,
        state=held.state_bytes,
        activations=held.activation_bytes,
        cuts=", ".join(map(forward.parameter_behind, nearest)),
    )


def _options(
    program: StepProgram, forward: Forward, schedule: Schedule, policies: Sequence[str], limit: float
) -> Iterator[list[int]]:
    stages = len(policies)
    yield forward.balanced(stages)
    ends = forward.ends(stages)
    fraction = stage_memory(program, forward, ends, schedule, policies).fraction
    for cap in (part * limit for part in TRIES):
        cuts = forward.best(stages, ends, lambda *stage, cap=cap: fraction(*stage) <= cap)
        if cuts is not None:
            yield cuts
    least = forward.best(stages, ends, weight=fraction)
    assert least is not None
    yield least
