"""Schedules without a flush: weights change while micro-batches are in flight, which changes the mathematics.

Orders are those of 1F1B over all micro-batches of a run. :class:`~shardc.dialects.pipe.schedule.Updates` says
which weights each micro-batch reads.
"""

from __future__ import annotations

from dataclasses import replace

from shardc.diagnostics.passes.pipeline import BadScheduleOption
from shardc.dialects.pipe.schedule import Schedule, Updates
from shardc.passes.pipeline.schedules.one_f_one_b import one_f_one_b


def pipe_dream(ranks: int, micro_batches: int) -> Schedule:
    """PipeDream: an update after each micro-batch; rank r keeps ``ranks - r`` versions of its weights.

    Narayanan et al., PipeDream, SOSP 2019.
    """
    return replace(one_f_one_b(ranks, micro_batches), name="pipedream", updates=Updates(every=1))


def pipe_dream_2bw(ranks: int, micro_batches: int, every: int | None = None) -> Schedule:
    """PipeDream-2BW: an update after each group of ``every`` micro-batches (default: the number of ranks).

    Gradients are those of the weights before the newest, so a rank keeps two versions (Narayanan et al.,
    PipeDream-2BW, ICML 2021). Raises BadScheduleOption if ``every`` is less than ``ranks`` or does not divide
    ``micro_batches``.
    """
    name, every = "pipedream-2bw", ranks if every is None else every
    if every < ranks or micro_batches % every:
        fitting = [n for n in range(ranks, micro_batches + 1) if micro_batches % n == 0]
        must = f"at least {ranks}, the number of ranks, and divide {micro_batches} micro-batches"
        nearest = min(fitting, key=lambda n: abs(n - every), default=ranks)
        raise BadScheduleOption(schedule=name, option="every", value=every, must=must, nearest=nearest)
    return replace(one_f_one_b(ranks, micro_batches), name=name, updates=Updates(every, delay=1))
