"""Trains the cost model that is shipped, from trials of a tuning database, and says how it ranks tasks held
out.

    python test/bench/tune_gather.py others.db --others --points 64 python test/bench/tune_pretrain.py
    others.db                     # reports: regression and ranking, tasks left out in turn python
    test/bench/tune_pretrain.py others.db --write             # writes
    python/shardc/tuner/cost_model/pretrained_cpu.txt

``top-k``: the share of the 5 fastest points of a task among the first 10 by score, with all of the task's
trials held out (a tenth of the tasks at a time).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from machine import heading, table
from recall import attained, recall, spearman
from tune_tasks import OTHERS

from shardc.tuner.cost_model.boosted_trees import PRETRAINED, BoostedTrees, Example, Trees, target_of
from shardc.tuner.database.database import open_database
from shardc.tuner.space.of_task import space_of

ROUNDS = 200
SLOW = {"learning_rate": 0.07, "feature_fraction": 0.4}
"""Many features say nearly the same."""
FOLDS = 10
Fit = Callable[[Sequence[Example]], Trees]


def examples(path: Path) -> dict[str, list[Example]]:
    """By the name of the task."""
    found: dict[str, list[Example]] = {}
    maker = BoostedTrees(pretrained=None)
    with open_database(path) as database:
        for named in OTHERS:
            task = named.task()
            space = space_of(task)
            trials = {t.point: t for t in database.trials(task) if space.refusal(t.point) is None}
            pairs = [(t, target_of(t)) for t in trials.values()]
            rows = [
                Example(task.key, t.point, maker.features(task, space, t.point), y)
                for t, y in pairs
                if y is not None
            ]
            if len(rows) >= 4:
                found[named.name] = rows
    return found


def regression(of: Sequence[Example]) -> Trees:
    """Least squares on the logarithm of the ratio over the task's own mean, so that trees tell points of a
    task apart and not tasks; large spaces count for more, but not by as much as they have points.
    """
    groups = _by_task(of)
    targets = [e.target - mean(other.target for other in group) for group in groups for e in group]
    weights = [len(group) ** -0.5 for group in groups for _ in group]
    rows = [e.features for group in groups for e in group]
    return Trees.train(rows, np.array(targets), ROUNDS, weights=np.array(weights) / mean(weights), **SLOW)


def ranking(of: Sequence[Example]) -> Trees:
    """LambdaRank, a task a group; the faster the more relevant. It gives large scores to what is good."""
    groups = _by_task(of)
    ordered = [e for group in groups for e in group]
    grades = np.concatenate([_grades([e.target for e in group]) for group in groups])
    sizes = [len(group) for group in groups]
    rows = [e.features for e in ordered]
    return _Reversed(Trees.train(rows, grades, ROUNDS, group=sizes, objective="lambdarank").booster)


class _Reversed(Trees):
    """Trees that give large numbers to what is good."""

    def predict(self, rows: Sequence[Mapping[str, float]]) -> np.ndarray:
        return -super().predict(rows)


def _by_task(of: Sequence[Example]) -> list[list[Example]]:
    groups: dict[str, list[Example]] = {}
    for example in of:
        groups.setdefault(example.task, []).append(example)
    return list(groups.values())


def _grades(targets: Sequence[float]) -> np.ndarray:
    """From 0 to 15, by the place."""
    places = np.argsort(np.argsort(targets, kind="stable"), kind="stable")
    return (15 * (1 - places / max(1, len(targets) - 1))).astype(int)


def held_out(found: dict[str, list[Example]], fit: Fit | None) -> list[list[object]]:
    """A row for each task, ranked by what was learned from the others; by the estimate, if
    ``fit`` is None.
    """
    rows, folds = [], [list(found)[n::FOLDS] for n in range(FOLDS)]
    learned = [
        fit([e for name, es in found.items() if name not in fold for e in es]) if fit else None
        for fold in folds
    ]
    for number, (name, own) in enumerate(found.items()):
        features, times = [e.features for e in own], [e.target for e in own]
        trees = learned[number % FOLDS]
        scores = [f["estimate"] for f in features] if trees is None else list(trees.predict(features))
        best = float(np.exp(min(times) - times[int(np.argmin(scores))]))
        rows.append(
            [
                name,
                len(own),
                best,
                attained(scores, np.exp(times), 10),
                recall(scores, times, 10, 5),
                spearman(scores, times),
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = examples(options.database)
    print(heading(f"Ranking of {len(found)} tasks, each held out"))
    names = ["", "points", "first's share of the best", "best of first 10", "top-5 in 10", "rank correlation"]
    rows = []
    for name, fit in (("estimate", None), ("regression", regression), ("lambdarank", ranking)):
        each = held_out(found, fit)
        rows.append([name, sum(r[1] for r in each), *(mean(r[i] for r in each) for i in range(2, 6))])
        if fit is regression:
            print(table(["held out", *names[1:]], each))
    print(table(["learned", *names[1:]], rows))
    if options.write:
        regression([e for own in found.values() for e in own]).booster.save_model(str(PRETRAINED))
        print(f"wrote {PRETRAINED.name}, {PRETRAINED.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
