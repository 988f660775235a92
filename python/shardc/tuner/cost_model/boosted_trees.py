"""``BoostedTrees``: gradient-boosted trees (LightGBM) over features, trained as trials arrive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.tuner.cost_model.kernel_features import kernel_features
from shardc.tuner.cost_model.kriging import interpolated, places
from shardc.tuner.cost_model.point_features import count_features, point_features
from shardc.tuner.task_tuning import tuning_of

if TYPE_CHECKING:
    import lightgbm

WORST = 2.0
"""Log ratio of failed trials. Slower trials count as this, too."""
PRETRAINED = Path(__file__).with_name("pretrained_cpu.txt")
"""File of trees trained on the project's own trials, by ``python test/bench/tune_pretrain.py``."""
SETTINGS = {
    "objective": "regression",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_data_in_leaf": 4,
    "lambda_l2": 1.0,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.9,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "seed": 1,
    "verbosity": -1,
}
LEAST = 12
"""Number of trials from which on trees are trained on them."""
GROWN = 1.25
"""Growth of the number of trials, as a factor, after which the trees are trained again."""
NEIGHBOURS = 4
"""Number of a task's trials from which on they predict neighbouring points."""
ROUNDS = 60
"""Number of trees for a session's own trials."""


@dataclass(frozen=True)
class Example:
    """Point that was tried: its features, its log ratio (``target``), and its prediction ``before`` that."""

    task: str
    point: Point
    features: Mapping[str, float]
    target: float
    before: float = 0.0


def target_of(trial: Trial) -> float | None:
    """Return the log of a trial's ratio: WORST if it failed, None if it was not run."""
    if trial.ok and trial.ratio:
        return max(-WORST, min(WORST, math.log(trial.ratio)))
    return None if trial.outcome is Outcome.BUILT else WORST


class BoostedTrees:
    """Ranking by pretrained trees, with two corrections.

    Trees trained on the session's own trials correct the pretrained ones, and the task's neighbouring trials
    (``kriging.py``) correct both. ``pretrained``: a file in LightGBM's text format, or None.
    """

    def __init__(self, pretrained: Path | None = PRETRAINED) -> None:
        self._pretrained = pretrained if pretrained is not None and pretrained.is_file() else None
        self._examples: list[Example] = []
        self._own: Trees | None = None
        self._grown_on = 0
        self._figures: dict[tuple[str, Point], Mapping[str, float]] = {}
        self._defaults: dict[str, Point] = {}
        self._rows: dict[tuple[str, Point], dict[str, float]] = {}
        self._said: dict[tuple[str, Point], float] = {}

    def learn(self, task: Task, space: Space, trials: Sequence[Trial]) -> None:
        """Add trials to the training data. Failed trials count as the worst."""
        for trial in trials:
            if trial.figures:
                self._figures[task.key, trial.point] = trial.figures
                self._rows.pop((task.key, trial.point), None)
                self._said.pop((task.key, trial.point), None)
        known = [(t.point, target) for t in trials if (target := target_of(t)) is not None]
        if known:
            rows = [self.features(task, space, point) for point, _ in known]
            before = self._before(task, space, [point for point, _ in known])
            for (point, target), row, said in zip(known, rows, before, strict=True):
                self._examples.append(Example(task.key, point, row, target, float(said)))

    def scores(self, task: Task, space: Space, points: Sequence[Point]) -> list[float]:
        """Return scores; the smallest is fastest.

        They are comparable only within a task, and are no times.
        """
        if not points:
            return []
        rows = [self.features(task, space, p) for p in points]
        found = self._before(task, space, points)
        if len(self._examples) >= max(LEAST, GROWN * self._grown_on):
            self._own, self._grown_on = self._train(), len(self._examples)
        if self._own is not None:
            found = found + self._own.predict(rows)
        return [float(v) for v in found + self._nearby(task, space, points)]

    def _nearby(self, task: Task, space: Space, points: Sequence[Point]) -> np.ndarray | float:
        """Return corrections to the trees' predictions, from the task's own trials at neighbouring points."""
        tried = [e for e in self._examples if e.task == task.key]
        if len(tried) < NEIGHBOURS:
            return 0.0
        left = np.array([e.target - e.before for e in tried])
        if self._own is not None:
            left = left - self._own.predict([e.features for e in tried])
        return interpolated(places(space, [e.point for e in tried]), left, places(space, points))

    def features(self, task: Task, space: Space, point: Point) -> Mapping[str, float]:
        """Return features by name: of the kernel, the point, the model's counts, and the binary if any."""
        if (task.key, point) not in self._rows:
            self._rows[task.key, point] = self._features(task, space, point)
        return self._rows[task.key, point]

    def _features(self, task: Task, space: Space, point: Point) -> dict[str, float]:
        default = self._defaults.get(task.key)
        if default is None:
            default = self._defaults[task.key] = space.ranked(1)[0]
        estimate = math.log(space.estimate_s(point) / space.estimate_s(default))
        figures = self._figures.get((task.key, point), {})
        found = point_features(kernel_features(task.text), point, default, estimate, figures)
        found |= count_features(space.counts(point), space.counts(default))
        return found | {"threads": float(task.threads)}

    @cached_property
    def _older(self) -> Trees | None:
        return Trees.load(self._pretrained) if self._pretrained is not None else None

    def _before(self, task: Task, space: Space, points: Sequence[Point]) -> np.ndarray:
        """Return predictions without the session's trials: the pretrained trees', or the estimates."""
        new = [p for p in dict.fromkeys(points) if (task.key, p) not in self._said]
        rows = [self.features(task, space, p) for p in new]
        if new and self._older is not None and tuning_of(task.target).is_pretrained:
            said = self._older.predict(rows)
        else:
            said = np.clip([r["estimate"] for r in rows], -WORST, WORST)
        self._said |= {(task.key, p): float(v) for p, v in zip(new, said, strict=True)}
        return np.array([self._said[task.key, p] for p in points])

    def _train(self) -> Trees:
        rows = [e.features for e in self._examples]
        left = np.array([e.target - e.before for e in self._examples])
        return Trees.train(rows, left, ROUNDS)


class Trees:
    """Booster with its feature names. Missing features are NaN."""

    def __init__(self, booster: lightgbm.Booster) -> None:
        self.booster = booster
        self._names = [name.replace("~", " ") for name in booster.feature_name()]

    @staticmethod
    def load(path: Path) -> Trees:
        import lightgbm

        return Trees(lightgbm.Booster(model_file=str(path)))

    @staticmethod
    def train(
        rows: Sequence[Mapping[str, float]],
        targets: np.ndarray,
        rounds: int,
        group: Sequence[int] | None = None,
        weights: np.ndarray | None = None,
        **settings: object,
    ) -> Trees:
        import lightgbm

        names = sorted({name for row in rows for name in row})
        spelled = [name.replace(" ", "~") for name in names]
        data = lightgbm.Dataset(
            _matrix(rows, names), targets, weight=weights, group=group, feature_name=spelled
        )
        return Trees(lightgbm.train(SETTINGS | settings, data, num_boost_round=rounds))

    def predict(self, rows: Sequence[Mapping[str, float]]) -> np.ndarray:
        return np.asarray(self.booster.predict(_matrix(rows, self._names), num_threads=1))


def _matrix(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> np.ndarray:
    return np.array([[row.get(name, math.nan) for name in names] for row in rows], dtype=np.float64)
