"""Lengths of the slices of a sequence with which all slices take about equally long."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import sqrt

from shardc.cost.work import work_bytes
from shardc.diagnostics.passes.pipeline import BadSliceLengths, NoSequence, TooFewTokens
from shardc.dialects.aten.call import OpCall
from shardc.dialects.pipe.schedule import Schedule

ATTENTION, ATTENTION_BACKWARD = "shardc.attention", "shardc.attention_backward"
TILE = 128
"""Largest multiple of tokens to which lengths are rounded: the rows of a matmul's tile."""
LEAST_TILES = 8
"""Tiles of a slice, on average, below which the multiple is smaller."""


def check_lengths(schedule: Schedule, tokens: int) -> None:
    """Check that ``schedule`` can slice sequences of so many tokens; 0 if no input has any.

    Raises NoSequence, TooFewTokens, BadSliceLengths.
    """
    count, lengths = schedule.slices, schedule.lengths
    if not tokens:
        raise NoSequence(schedule=schedule.name)
    if tokens < count:
        raise TooFewTokens(schedule=schedule.name, slices=count, tokens=tokens)
    if lengths and (len(lengths) != count or min(lengths) < 1 or sum(lengths) != tokens):
        given = " + ".join(map(str, lengths))
        raise BadSliceLengths(schedule=schedule.name, lengths=given, slices=count, tokens=tokens)


def balanced_lengths(calls: Iterable[OpCall], tokens: int, slices: int) -> list[int]:
    """Return the lengths of ``slices`` of ``tokens``, for the ``calls`` of a micro-batch.

    The time of the first part x of all tokens is ``linear * x + causal * x**2``: a query attends to all
    earlier tokens, and all else is done for each token.
    """
    work = {is_causal: 0.0 for is_causal in (False, True)}
    for call in calls:
        work[call.target in (ATTENTION, ATTENTION_BACKWARD)] += work_bytes(call)
    linear, causal = work[False], work[True]
    unit, ends = 1, [0]
    while unit < TILE and 2 * LEAST_TILES * unit * slices <= tokens:
        unit *= 2
    for number in range(1, slices):
        done = (linear + causal) * number / slices
        # The positive root of causal x^2 + linear x = done, in a form that holds without causal work, too.
        part = 2 * done / (linear + sqrt(linear**2 + 4 * causal * done)) if done else number / slices
        end = unit * round(part * tokens / unit)
        ends.append(min(max(end, ends[-1] + 1), tokens - (slices - number)))
    return [end - start for start, end in pairwise([*ends, tokens])]
