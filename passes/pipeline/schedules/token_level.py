"""Schedules of slices: a sequence is split into slices that pass through the pipeline one after the other.

Attention is causal: the forward of a slice needs the keys and values of earlier slices, and its backward
needs their gradients from later slices. Each slice is a micro-batch of the schedule, with number ``slices *
sequence + slice``.
"""

from __future__ import annotations

from shardc.diagnostics.passes.pipeline import BadScheduleOption
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule, one_route, orders
from shardc.passes.pipeline.schedules.one_f_one_b import alternate


def tera_pipe(ranks: int, micro_batches: int, slices: int = 4, lengths: tuple[int, ...] = ()) -> Schedule:
    """All forwards slice by slice, then all backwards in the opposite order (Li et al., TeraPipe, 2021).

    ``lengths``: the tokens of each slice, which also give their number; default: slices of equal time.
    """
    slices = len(lengths) or slices
    _check(slices, "terapipe")
    every = range(micro_batches * slices)
    lists = [
        [Action(rank, "F", m) for m in every] + [Action(rank, "B", m) for m in reversed(every)]
        for rank in range(ranks)
    ]
    return Schedule("terapipe", orders(lists), one_route(ranks), slices, lengths=tuple(lengths))


def seq_1f1b(ranks: int, micro_batches: int, slices: int = 4, lengths: tuple[int, ...] = ()) -> Schedule:
    """1F1B over slices; a sequence's last slice is the first in backward (Sun et al., Seq1F1B, 2024).

    Rank r runs at most ``ranks - r`` slices, plus the other slices of a sequence, ahead of its backwards.
    With s slices this takes about 1/s of 1F1B's memory and bubble. ``lengths``: the tokens of each slice,
    which also give their number; default: slices of equal time.
    """
    slices = len(lengths) or slices
    _check(slices, "seq-1f1b")
    lists = []
    for rank in range(ranks):
        forward = [Action(rank, "F", m) for m in range(micro_batches * slices)]
        backward = [
            Action(rank, "B", sequence * slices + part)
            for sequence in range(micro_batches)
            for part in reversed(range(slices))
        ]
        ahead = ranks - rank - 1 + slices - 1
        lists.append(alternate(forward, backward, min(ahead, len(forward))))
    return Schedule("seq-1f1b", orders(lists), one_route(ranks), slices, lengths=tuple(lengths))


def _check(slices: int, name: str) -> None:
    if slices < 1:
        raise BadScheduleOption(schedule=name, option="slices", value=slices, must="at least 1", nearest=1)
