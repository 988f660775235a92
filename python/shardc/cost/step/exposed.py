"""Exposed time of collectives: how long kernels wait for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from shardc.cost.step.spans import ItemSpan, RankSpans


def exposed_s(rank: RankSpans) -> list[float]:
    """Return for each item of a rank the seconds in which its kernels wait for it.

    Kernels and hidden collectives have 0. The sum is the time that the step's report gives to mesh axes.
    """
    waits = [0.0] * len(rank.items)
    for _, members in groupby(range(len(rank.items)), key=lambda n: rank.items[n].part):
        _add_part(rank.items, list(members), waits)
    return waits


def _add_part(items: Sequence[ItemSpan], members: Sequence[int], waits: list[float]) -> None:
    """Add the waits of a part, which begins when the previous one has ended on all streams."""
    free_s = items[members[0]].start_s
    for number in members:
        span = items[number]
        if span.stream:
            continue
        if span.item.kind == "collective":  # on the stream of kernels, where nothing overlaps
            waits[number] += span.end_s - span.start_s
        latest = max(span.needs, key=lambda n: items[n].end_s, default=None)
        if latest is not None and span.start_s > free_s:
            waits[latest] += span.start_s - free_s
        free_s = span.end_s
    last = max(members, key=lambda n: items[n].end_s)
    if items[last].stream:
        waits[last] += items[last].end_s - free_s
