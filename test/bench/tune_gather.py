"""Measures points of the benchmark's tasks into a tuning database: whole spaces, or so many points drawn from
each.

    python test/bench/tune_gather.py tables.db                       # the 20 tasks, every point python
    test/bench/tune_gather.py others.db --others --points 64  # what the shipped cost model is trained on
    python test/bench/tune_gather.py tables.db --tasks softmax --minutes 5 python test/bench/tune_gather.py
    tables.db --settle             # measures the fastest again, against the default

Goes on where it was stopped. One thread, so that what is timed is the CPU time of that thread.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from tune_tasks import OTHERS, TASKS, Named

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Trial
from shardc.diagnostics.base import ShardcError
from shardc.tuner.database.database import Database, open_database
from shardc.tuner.measurer import Measurer
from shardc.tuner.space.of_task import space_of

BATCH = 8
SETTLED = 24
"""Points of a task that are measured again at most."""


def gather(named: Named, database: Database, measurer: Measurer, most: int | None, end_s: float) -> str:
    """Measures what is missing; a line about it."""
    task = named.task()
    space = space_of(task)
    points = sorted(space.points())
    if most is not None and len(points) > most:
        ranked = list(space.ranked(most // 4))
        drawn = [p for p in points if p not in set(ranked)]
        points = [*ranked, *random.Random(0).sample(drawn, most - len(ranked))]
    known = {t.point for t in database.trials(task)}
    left = [p for p in points if p not in known]
    random.Random(0).shuffle(left)  # what drifts while they are measured is no effect of a parameter
    started = time.monotonic()
    for first in range(0, len(left), BATCH):
        if time.monotonic() > end_s:
            return f"{named.name}: {len(left) - first} of {len(points)} points are left"
        database.record(task, list(measurer.measure(task, left[first : first + BATCH])))
    return f"{named.name}: {len(left)} points in {time.monotonic() - started:.0f} s, {len(points)} in all"


def settle(named: Named, database: Database, measurer: Measurer, end_s: float) -> str:
    """Measures the fastest point again, in many turns with the untuned kernel itself, until the fastest is
    one that was: of a thousand ratios the least is the luckiest, and those to an incumbent carry the luck of
    all incumbents before it.
    """
    task = named.task()
    latest = {t.point: t for t in database.trials(task)}
    before, again = _fastest(latest), set()
    while (
        (point := _fastest(latest).point) not in again and len(again) < SETTLED and time.monotonic() < end_s
    ):
        again.add(point)
        latest[point] = measurer.confirm(task, point)
        database.record(task, [latest[point]])
    after = _fastest(latest)
    said = "settled" if after.point in again else "not settled"
    return (
        f"{named.name}: {len(again)} measured again, {said}; the best ratio was {before.ratio:.3f}, is "
        f"{after.ratio:.3f}"
    )


def _fastest(latest: Mapping[Point, Trial]) -> Trial:
    return min((t for t in latest.values() if t.ok), key=lambda t: (t.ratio, t.point))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", type=Path)
    parser.add_argument("--others", action="store_true", help="the tasks to train on")
    parser.add_argument(
        "--points", type=int, help="at most so many of each task: a quarter by estimate, the rest drawn"
    )
    parser.add_argument("--tasks", default="", help="those whose name has this in it")
    parser.add_argument("--settle", action="store_true", help="measures the fastest again instead")
    parser.add_argument("--minutes", type=float, default=1e6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    end_s = time.monotonic() + 60 * options.minutes
    with open_database(options.database) as database, Measurer() as measurer:
        for named in OTHERS if options.others else TASKS:
            if options.tasks in named.name:
                try:
                    if options.settle:
                        print(settle(named, database, measurer, end_s), flush=True)
                    else:
                        print(gather(named, database, measurer, options.points, end_s), flush=True)
                except ShardcError as error:
                    print(f"{named.name}: {error}", flush=True)


if __name__ == "__main__":
    main()
