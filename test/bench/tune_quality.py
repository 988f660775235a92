"""How near searches come to the best of a whole space, replayed on recorded tables: seeds and budgets cost
nothing.

    python test/bench/tune_gather.py tables.db                  # measures every point once python
    test/bench/tune_quality.py tables.db                 # strategies, budgets, zero trials, stopping by
    regret python test/bench/tune_quality.py tables.db --model none    # trees without what was trained before
    python test/bench/tune_quality.py others.db --others        # on the tasks that the shipped model was
    trained on

Of each task: the share of the exhaustive best's speed that a search's choice has (median of seeds), that is
the best time over the choice's. ``top-k`` is the share of the fastest 5 points among the model's first 10,
and 32, with no trial of the task. Where a space has no more points than the budget any search that measures
nothing twice ends at 1: such tasks are ties, and a second comparison leaves them out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import torch
from by_estimate import Estimates
from machine import heading, table
from recall import recall, spearman
from tune_tasks import OTHERS, TASKS, Named

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.tuner.cost_model.boosted_trees import PRETRAINED, BoostedTrees
from shardc.tuner.database.database import open_database
from shardc.tuner.session import Budget, Session
from shardc.tuner.space.of_task import space_of
from shardc.tuner.task_scheduler import Job

BUDGETS = (8, 16, 32, 64, 128, 256)
STRATEGIES = ("evolutionary", "random", "analytic")
OURS, PEER = STRATEGIES[:2]
NEAR = (0.97, 0.99)
"""Shares of the best that a search's trials are counted to."""


@dataclass(frozen=True)
class Recorded(Space):
    """The points that were measured, ``known``, in the space's order: they are not derived again for each
    search.
    """

    known: Mapping[Point, float] = field(default_factory=dict)

    def points(self) -> Iterator[Point]:
        return iter(self.known)

    def refusal(self, point: Point) -> str | None:
        return None if point in self.known else "it was not measured"

    def estimate_s(self, point: Point) -> float:
        return self.known[point]


@dataclass
class Table:
    """A task's points as they were measured; what was not measured is not in its space."""

    name: str
    task: Task
    space: Space
    trials: dict[Point, Trial]
    untuned: float = 1.0
    """Of the kernel without any configuration, in what ``trials`` are ratios to."""

    @property
    def best(self) -> float:
        return min(t.ratio for t in self.trials.values() if t.ok)

    @property
    def default(self) -> Point:
        return self.space.ranked(1)[0]

    def share(self, point: Point) -> float:
        """The best's time over that of ``point``."""
        trial = self.trials[point]
        return self.best / trial.ratio if trial.ok else 0.0

    def begin(self, task: Task, default: Point, incumbent: Trial | None = None) -> None:
        """Nothing to start."""

    def measure(self, task: Task, points: Sequence[Point]) -> list[Trial]:
        return [self.trials[p] for p in points]

    def confirm(self, task: Task, point: Point) -> Trial:
        return self.trials[point]


@dataclass
class _Nothing:
    """A database that forgets."""

    trials_: list[Trial] = field(default_factory=list)

    def trials(self, task: Task) -> list[Trial]:
        return []

    def record(self, task: Task, trials: Sequence[Trial]) -> None:
        self.trials_ += trials


def read_tables(path: Path, named: Sequence[Named], whole: float) -> list[Table]:
    """Of the tasks of which at least the share ``whole`` of all legal points was measured."""
    found = []
    with open_database(path) as database:
        for each in named:
            task = each.task()
            trials = {t.point: t for t in database.trials(task)}
            space = space_of(task)
            points = list(space.points())
            if sum(p in trials for p in points) < whole * len(points):
                continue
            known = Recorded(space.sketches, known={p: space.estimate_s(p) for p in points if p in trials})
            table_ = Table(each.name, task, known, {p: trials[p] for p in points if p in trials})
            scale = table_.trials[table_.default].ratio  # the default's own is 1
            table_.trials = {p: _scaled(t, scale) for p, t in table_.trials.items()}
            table_.untuned = 1.0 / scale
            found.append(table_)
    return found


def _scaled(trial: Trial, scale: float) -> Trial:
    ratio = trial.ratio / scale if trial.ok else None
    return Trial(trial.point, trial.outcome, ratio, trial.seconds, trial.spread, trial.said, trial.figures)


def search(
    of: Table, strategy: str, budget: Budget, seed: int, model: BoostedTrees | Estimates
) -> list[float]:
    """The share of the best that it has come to before any trial and after each. A search proposes the same
    points whatever its budget, so that one answers for all smaller ones.
    """
    spaces = {of.task: of.space}
    session = Session(
        _Nothing(),
        of,
        spaces=spaces.__getitem__,
        model=model,
        budget=budget,
        strategy=strategy,
        seed=seed,
    )
    result = session.tune([Job(of.task)])
    shares = [
        0.0 if strategy == PEER else of.share(result.tasks[0].analytic)
    ]  # random search knows nothing before
    for trial in result.tasks[0].trials:
        shares.append(max(shares[-1], of.share(trial.point)))
    return shares


Runs = Mapping[str, list[list[list[float]]]]
"""Of each strategy: of each task, of each seed, the shares after so many trials."""


def at(runs: list[list[float]], budget: int) -> float:
    """The median of the seeds after ``budget`` trials, or after the last."""
    return median(run[min(budget, len(run) - 1)] for run in runs)


def trials_to(runs: list[list[float]], share: float) -> float:
    """The median of the trials after which a search had ``share`` of the best; infinite for one that never
    had.
    """
    return median(next((n for n, s in enumerate(run) if s >= share), math.inf) for run in runs)


def zero_trials(of: Table, model: BoostedTrees | Estimates) -> list[object]:
    """Without any trial: what is chosen, and how the model ranks."""
    points = [p for p, t in of.trials.items() if t.ok]
    times = [ratio for p in points if (ratio := of.trials[p].ratio) is not None]
    assert len(times) == len(points)
    session = Session(_Nothing(), of, spaces=lambda _: of.space, model=model, budget=Budget(trials=0))
    chosen = session.tune([Job(of.task)]).tasks[0].chosen
    assert chosen is not None
    scores = model.scores(of.task, of.space, points)
    failed = sum(t.outcome is not Outcome.MEASURED for t in of.trials.values())
    return [
        of.name,
        len(of.trials),
        failed,
        of.share(of.default),
        of.share(chosen),
        recall(scores, times, 10, 5),
        recall(scores, times, 32, 5),
        spearman(scores, times),
    ]


def by_task(tables: Sequence[Table], runs: Runs) -> str:
    """Of each task: the share after each budget, and the trials to near the best, of ours and of random
    search.
    """
    names = ["task", "points", *map(str, BUDGETS), *(f"random {n}" for n in BUDGETS)]
    names += [f"to {1 - share:.0%}" for share in NEAR] + [f"random to {1 - share:.0%}" for share in NEAR]
    rows = []
    for number, of in enumerate(tables):
        ours, peer = runs[OURS][number], runs[PEER][number]
        shares = [at(each, n) for each in (ours, peer) for n in BUDGETS]
        rows.append(
            [
                of.name,
                len(of.trials),
                *map(_three, shares),
                *(trials_to(e, s) for e in (ours, peer) for s in NEAR),
            ]
        )
    return table(names, rows)


def by_budget(tables: Sequence[Table], runs: Runs, large: bool) -> str:
    """Of each strategy and budget: the share of the best in the mean of the tasks, or of those whose space is
    larger than the budget; and at how many budgets ours is better than random search.
    """
    rows, better, tied, budgets = [], 0, 0, 0
    for budget in BUDGETS:
        kept = [n for n, of in enumerate(tables) if not large or len(of.trials) > budget]
        if not kept:
            continue
        found = {s: [at(runs[s][n], budget) for n in kept] for s in runs}
        budgets += 1
        better += mean(found[OURS]) > mean(found[PEER])
        tied += mean(found[OURS]) == mean(found[PEER])
        wins = sum(a > b for a, b in zip(found[OURS], found[PEER], strict=True))
        losses = sum(a < b for a, b in zip(found[OURS], found[PEER], strict=True))
        for strategy, shares in found.items():
            within = f"{sum(s >= NEAR[0] for s in shares)} of {len(shares)}"
            against = f"{wins} to {losses}" if strategy == OURS else ""
            rows.append([strategy, budget, _three(mean(shares)), _three(min(shares)), within, against])
    names = [
        "strategy",
        "trials",
        "share of the best",
        "worst task",
        f"within {1 - NEAR[0]:.0%}",
        "tasks won and lost to random",
    ]
    which = "tasks with more points than the budget" if large else "all tasks"
    said = f"{OURS} is better than random at {better} of {budgets} budgets" + f", equal at {tied}" * bool(
        tied
    )
    return f"{table(names, rows)}\n{said} ({which}, mean of the medians of the seeds)\n"


def from_near(tables: Sequence[Table], path: Path) -> str:
    """What a compile takes over from the nearest size in the database at ``path``, which has none of the
    tables' tasks.
    """
    rows = []
    with open_database(path) as database:
        for of in tables:
            found = database.best(of.task)
            share = (
                "-"
                if found is None
                else _three(of.share(found.point))
                if found.point in of.trials
                else "illegal here"
            )
            untuned = _three(of.best / of.untuned)
            rows.append([of.name, found.near if found is not None else "-", share, untuned])
    return table(["task", "nearest size with a gain", "share of the best", "untuned"], rows)


def _three(share: float) -> str:
    return f"{share:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--whole", type=float, default=0.98, help="tasks with less than this share measured are left out"
    )
    parser.add_argument("--model", default="pretrained", choices=("pretrained", "none", "estimates"))
    parser.add_argument("--others", action="store_true", help="the tasks to train on")
    parser.add_argument(
        "--near", type=Path, help="also what is taken over from the nearest sizes in this database"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)

    def model() -> BoostedTrees | Estimates:
        if options.model == "estimates":
            return Estimates()
        return BoostedTrees(PRETRAINED if options.model == "pretrained" else None)

    tables = read_tables(options.database, OTHERS if options.others else TASKS, options.whole)
    print(
        heading(
            f"Searches on {len(tables)} recorded tables, {options.seeds} seeds, cost model: {options.model}"
        )
    )
    rows = [zero_trials(t, model()) for t in tables]
    names = [
        "task",
        "points",
        "failed",
        "estimate's first",
        "zero trials",
        "top-5 in 10",
        "top-5 in 32",
        "rank correlation",
    ]
    means = [
        "all",
        sum(r[1] for r in rows),
        sum(r[2] for r in rows),
        *(mean(r[i] for r in rows) for i in range(3, 8)),
    ]
    print(table(names, [*rows, means]))
    if options.near is not None:
        print(from_near(tables, options.near))
    print(
        f"zero trials give at least 90% of the best on {sum(r[4] >= 0.9 for r in rows)} of {len(rows)} "
        f"tasks\n"
    )
    runs = {}
    for strategy in STRATEGIES:
        seeds = range(options.seeds if strategy != "analytic" else 1)
        runs[strategy] = [
            [search(t, strategy, Budget(BUDGETS[-1], regret=0.0), s, model()) for s in seeds] for t in tables
        ]
    print(by_task(tables, runs))
    print(by_budget(tables, runs, large=False))
    print(by_budget(tables, runs, large=True))
    at_64 = [at(of_task, 64) for of_task in runs[OURS]]
    print(f"within 3% of the best after 64 trials: {sum(s >= 0.97 for s in at_64)} of {len(at_64)} tasks\n")
    rows = []
    for regret in (0.05, 0.02, 0.01):
        ended = [search(t, OURS, Budget(regret=regret), 0, model()) for t in tables]
        trials = mean(len(run) - 1 for run in ended)
        rows.append([f"{regret:.0%}", trials, mean(run[-1] for run in ended), min(run[-1] for run in ended)])
    print(table(["stopped at a regret of", "trials", "share of the best", "worst task"], rows))


if __name__ == "__main__":
    main()
