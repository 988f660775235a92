"""Schedules by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from shardc.diagnostics.pipeline import TooFewMicroBatches, UnknownSchedule
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.schedules.one_f_one_b import fill_drain, interleaved, one_f_one_b
from shardc.passes.pipeline.schedules.zero_bubble import zb_h1, zb_h2


@dataclass(frozen=True)
class Named:
    """``make(ranks, micro_batches, stages_per_rank)``; ``per_rank`` stages a rank if nobody says; ``grouped``: micro-batches
    go in groups of as many as there are ranks."""

    make: Callable[[int, int, int], Schedule]
    per_rank: int = 1
    grouped: bool = False


SCHEDULES: dict[str, Named] = {
    "1f1b": Named(lambda ranks, m, _: one_f_one_b(ranks, m)),
    "breadth-first": Named(fill_drain, per_rank=2),
    "fill-drain": Named(lambda ranks, m, _: fill_drain(ranks, m)),
    "interleaved": Named(interleaved, per_rank=2, grouped=True),
    "zb-h1": Named(lambda ranks, m, _: zb_h1(ranks, m)),
    "zb-h2": Named(lambda ranks, m, _: zb_h2(ranks, m)),
}


def named_schedule(name: str, ranks: int, micro_batches: int, stages_per_rank: int = 0) -> Schedule:
    """The schedule called ``name``. ``stages_per_rank``: 0 for its usual number, which alone the others have.

    Raises UnknownSchedule, TooFewMicroBatches.
    """
    if name not in SCHEDULES:
        nearest = difflib.get_close_matches(name, SCHEDULES, n=1, cutoff=0.0)[0]
        raise UnknownSchedule(name=name, nearest=nearest, known=", ".join(SCHEDULES))
    named = SCHEDULES[name]
    if named.grouped and micro_batches % ranks:
        above = micro_batches + -micro_batches % ranks
        needed = f"a multiple of {ranks} micro-batches"
        raise TooFewMicroBatches(schedule=name, ranks=ranks, needed=needed, found=micro_batches, nearest=above)
    return named.make(ranks, micro_batches, stages_per_rank or named.per_rank)
