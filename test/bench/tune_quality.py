"""How near searches come to the best of a whole space, replayed on recorded tables: seeds and budgets cost nothing.

    python test/bench/tune_gather.py tables.db                  # measures every point once
    python test/bench/tune_quality.py tables.db                 # strategies, budgets, zero trials, stopping by regret
    python test/bench/tune_quality.py tables.db --model none    # trees without what was trained before

Of each task: the share of the exhaustive best's speed that a search's choice has (median of seeds), that is the best time
over the choice's. ``top-k`` is the share of the fastest 5 points among the model's first 10, and 32, with no trial of the
task.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, mean, median

import torch
from machine import heading, table
from tune_tasks import TASKS

from shardc.tuner.cost_model.base import CostModel, Estimates
from shardc.tuner.cost_model.boosted_trees import PRETRAINED, BoostedTrees
from shardc.tuner.cost_model.recall import recall, spearman
from shardc.tuner.database import open_database
from shardc.tuner.point import Point
from shardc.tuner.session import Budget, tune
from shardc.tuner.space.of_task import space_of
from shardc.tuner.space.space import Space
from shardc.tuner.task import Task
from shardc.tuner.task_scheduler import Job
from shardc.tuner.trial import Outcome, Trial

BUDGETS = (8, 16, 32, 64, 128, 256)
STRATEGIES = ("evolutionary", "random", "analytic")


@dataclass
class Table:
    """A task's points as they were measured; what was not measured is not in its space."""

    name: str
    task: Task
    space: Space
    trials: dict[Point, Trial]

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


def read_tables(path: Path, whole: float) -> list[Table]:
    """Of the tasks of which at least the share ``whole`` of all legal points was measured."""
    found = []
    with open_database(path) as database:
        for named in TASKS:
            task = named.task()
            trials = {t.point: t for t in database.trials(task)}
            space = space_of(task)
            points = list(space.points())
            if sum(p in trials for p in points) < whole * len(points):
                continue
            rest = frozenset(p for p in points if p not in trials)
            known = Space(space.sketches, forbidden=rest)
            table_ = Table(named.name, task, known, {p: trials[p] for p in points if p in trials})
            scale = table_.trials[table_.default].ratio  # the default's own is 1
            table_.trials = {p: _scaled(t, scale) for p, t in table_.trials.items()}
            found.append(table_)
    return found


def _scaled(trial: Trial, scale: float) -> Trial:
    ratio = trial.ratio / scale if trial.ok else None
    return Trial(trial.point, trial.outcome, ratio, trial.seconds, trial.spread, trial.said, trial.figures)


def search(of: Table, strategy: str, budget: Budget, seed: int, model: CostModel) -> list[float]:
    """The share of the best that it has come to before any trial and after each. A search proposes the same points
    whatever its budget, so that one answers for all smaller ones.
    """
    spaces = {of.task: of.space}
    result = tune(
        [Job(of.task)], _Nothing(), of, spaces=spaces.__getitem__, model=model, budget=budget, strategy=strategy, seed=seed
    )
    shares = [0.0 if strategy == "random" else of.share(of.default)]  # random search knows nothing of the default
    for trial in result.tasks[0].trials:
        shares.append(max(shares[-1], of.share(trial.point)))
    return shares


def zero_trials(of: Table, model: CostModel) -> list[object]:
    """Without any trial: what is chosen, and how the model ranks."""
    points = [p for p, t in of.trials.items() if t.ok]
    times = [of.trials[p].ratio for p in points]
    scores = model.scores(of.task, of.space, points)
    first = points[min(range(len(points)), key=lambda n: (scores[n], points[n]))]
    failed = sum(t.outcome is not Outcome.MEASURED for t in of.trials.values())
    return [
        of.name, len(of.trials), failed, of.share(of.default), of.share(first), recall(scores, times, 10, 5),
        recall(scores, times, 32, 5), spearman(scores, times),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--whole", type=float, default=0.98, help="tasks with less than this share measured are left out")
    parser.add_argument("--model", default="pretrained", choices=("pretrained", "none", "estimates"))
    options = parser.parse_args()
    torch.set_num_threads(1)

    def model() -> CostModel:
        if options.model == "estimates":
            return Estimates()
        return BoostedTrees(PRETRAINED if options.model == "pretrained" else None)

    tables = read_tables(options.database, options.whole)
    print(heading(f"Searches on {len(tables)} recorded tables, {options.seeds} seeds, cost model: {options.model}"))
    rows = [zero_trials(t, model()) for t in tables]
    names = ["task", "points", "failed", "default", "model's first", "top-5 in 10", "top-5 in 32", "rank correlation"]
    means = ["all", sum(r[1] for r in rows), sum(r[2] for r in rows), *(mean(r[i] for r in rows) for i in range(3, 8))]
    print(table(names, [*rows, means]))
    rows = []
    for strategy in STRATEGIES:
        seeds = range(options.seeds if strategy != "analytic" else 1)
        runs = [[search(t, strategy, Budget(BUDGETS[-1], regret=0.0), s, model()) for s in seeds] for t in tables]
        for budget in BUDGETS:
            shares = [median(run[min(budget, len(run) - 1)] for run in of_task) for of_task in runs]
            within = sum(s >= 0.97 for s in shares)
            rows.append([strategy, budget, geometric_mean(max(s, 1e-3) for s in shares), min(shares), f"{within} of {len(shares)}"])
    print(table(["strategy", "trials", "share of the best", "worst task", "within 3%"], rows))
    rows = []
    for regret in (0.05, 0.02, 0.01):
        ended = [search(t, "evolutionary", Budget(regret=regret), 0, model()) for t in tables]
        trials = mean(len(run) - 1 for run in ended)
        rows.append([f"{regret:.0%}", trials, mean(run[-1] for run in ended), min(run[-1] for run in ended)])
    print(table(["stopped at a regret of", "trials", "share of the best", "worst task"], rows))


if __name__ == "__main__":
    main()
