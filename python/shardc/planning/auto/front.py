"""Pareto front of memory and time: the fastest plans for less and less memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.diagnostics.passes.search import NoPlanFound, NoPlanYet
from shardc.diagnostics.text import size_text, table
from shardc.passes.search.clock import INTERRUPTED
from shardc.planning.auto.fit import Picked, room_for
from shardc.planning.auto.searches import Searches
from shardc.planning.price import Price
from shardc.planning.verdict import time_text
from shardc.runtime.check import Json

MOST = 6
"""Points of a front."""
STEP = 0.75
"""Memory of the next point, at most, as a part of this point's."""
_TRIES = 2
"""Searches per point. Few are enough: a plan that needs slightly more than was asked for is a point, too."""


@dataclass(frozen=True)
class Front:
    """Compiled plans, the fastest first, each with less memory than the one before. ``why``: why it ends."""

    points: Sequence[Price]
    why: str


def front_of(searches: Searches, first: Picked) -> Front:
    """Return the front from a search's answer to less memory, with at most :data:`MOST` points."""
    picked, points = first, [first.priced.on(searches.cluster)]
    why = f"{MOST} points are enough"
    while len(points) < MOST:
        last = points[-1]
        within = STEP * last.needed_bytes / last.capacity_bytes
        if searches.is_interrupted:
            why = INTERRUPTED
            break
        try:
            picked = searches.best(within, room_for(within, picked, last), _TRIES)
        except NoPlanFound:
            why = f"no plan was found that needs less than {size_text(STEP * last.needed_bytes)}"
            break
        except NoPlanYet as error:
            why = str(error.fields["why"])
            break
        point = picked.priced.on(searches.cluster)
        if point.needed_bytes >= last.needed_bytes:
            why = f"what was found below {size_text(last.needed_bytes)} needs more when it is compiled"
            break
        points.append(point)
    return Front(_undominated(points), why)


def _undominated(points: Sequence[Price]) -> list[Price]:
    """Return the points that no later one beats in time. Later points need less memory."""
    return [
        point
        for at, point in enumerate(points)
        if all(point.time.seconds < other.time.seconds for other in points[at + 1 :])
    ]


def front_text(front: Front) -> list[str]:
    """Return lines: a table with a row for each point, and why the front ends."""
    rows = [("needs", "peak", "step", "plan")]
    rows += [
        (
            size_text(point.needed_bytes),
            size_text(point.fullest.peak_bytes),
            time_text(point.time.seconds),
            point.priced.candidate.text,
        )
        for point in front.points
    ]
    head = "memory against time: the fastest plans that were found for less and less memory"
    return [f"{head}; the list ends because {front.why}", *table(rows, right=(0, 1, 2))]


def front_json(front: Front) -> Json:
    """Return the front as JSON. ``searched_bytes``: memory per device with which a search finds the plan."""
    return {"why": front.why, "points": [_point(point) for point in front.points]}


def _point(point: Price) -> Json:
    candidate = point.priced.candidate
    return {
        "recompute": "none",
        **candidate.options,
        "searched_bytes": candidate.room * point.capacity_bytes,
        "needed_bytes": point.needed_bytes,
        "peak_bytes": point.fullest.peak_bytes,
        "step_s": point.time.seconds,
    }
