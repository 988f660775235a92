"""``Measurer``: points in, trials out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from shardc.backends.tuning.decision import Pairs, Rule, Verdict
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.process import Ended, Refused, TookTooLong
from shardc.backends.tuning.runner import Runner
from shardc.backends.tuning.target import Builder
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built, Outcome, Trial
from shardc.diagnostics.tuner import TaskNotTunable
from shardc.tuner.task_tuning import task_backend, tuning_of

CONFIRM = Rule(most=60, width=0.005, clear=float("inf"), budget_s=4.0)
"""Of the last comparison with the default, whose ratio is what is reported."""


@dataclass
class _State:
    """The default of a task (its code and path), and the best so far with its ratio to the default."""

    code: str
    default: Path
    incumbent: Path
    ratio: float = 1.0
    trials: dict[str, Trial] = field(default_factory=dict)
    """By what was compiled: points that come to the same machine code are measured once."""


class Measurer:
    """Builds points in ``processes`` at once and times each in turns with the best so far, the incumbent, at
    first the default. Ratios are to the default directly: trials of one task compare. Points of a device that
    is not here are built, and not run.

    ``builders`` and ``runners``: by backend, where not the target's own. On one thread, points are built
    while others are timed, by the thread's clock. A context manager.
    """

    def __init__(
        self,
        processes: int | None = None,
        rule: Rule | None = None,
        builders: Mapping[str, Builder] | None = None,
        runners: Mapping[str, Runner] | None = None,
    ) -> None:
        self._processes, self._rule = processes, rule or Rule()
        self._builders, self._runners = dict(builders or {}), dict(runners or {})
        self._states: dict[str, _State] = {}

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes and removes what was built."""
        for each in (*self._builders.values(), *self._runners.values()):
            each.close()

    def begin(self, task: Task, default: Point | None = None, incumbent: Trial | None = None) -> None:
        """Set the default (None: the kernel without configuration) and the best known trial. Raises
        TaskNotTunable: no default was built.
        """
        if not self.runs(task):
            return
        self._builder_of(task).start()
        self._runner_of(task).start(task.threads)
        points = [default] if incumbent is None or incumbent.point == default else [default, incumbent.point]
        built, *best = self._builder_of(task).build(task, points)
        if built.path is None:
            reason = f"its default configuration was not built: {built.said}"
            raise TaskNotTunable(task=task.label, reason=reason)
        state = self._states[task.key] = _State(built.code, built.path, built.path)
        if best and best[0].path is not None and incumbent is not None and incumbent.ratio is not None:
            state.incumbent, state.ratio = best[0].path, incumbent.ratio

    def measure(self, task: Task, points: Sequence[Point]) -> Iterator[Trial]:
        """A trial for each point, in order, as soon as it is known. Raises TaskNotTunable: the default is
        wrong, or there is no reference. For GPUs, UnknownTarget, TritonMissing, TritonTooOld.
        """
        if not self.runs(task):
            yield from map(_binary, self._builder_of(task).build(task, points))
            return
        if task.key not in self._states:
            self.begin(task)
        built = self._builder_of(task).build(task, points)
        if task.threads > 1 or tuning_of(task.target).timed_alone:
            built = list(built)  # what is not timed by the thread's clock is timed alone
        for each in built:
            yield self._trial(task, each)

    def confirm(self, task: Task, point: Point) -> Trial:
        """Time the point against the default, with more pairs than a search. Raises TaskNotTunable."""
        if not self.runs(task):
            return next(self.measure(task, [point]))
        if task.key not in self._states:
            self.begin(task)
        (built,) = self._builder_of(task).build(task, [point])
        return _binary(built) if built.path is None else self._against_default(task, built, CONFIRM)

    def runs(self, task: Task) -> bool:
        """Whether what is built for a task can be run here. Raises UnknownTarget."""
        return self._runner_of(task).runs(task.target)

    def _builder_of(self, task: Task) -> Builder:
        backend = task_backend(task.target)
        if backend not in self._builders:
            self._builders[backend] = tuning_of(task.target).builder(self._processes)
        return self._builders[backend]

    def _runner_of(self, task: Task) -> Runner:
        backend = task_backend(task.target)
        if backend not in self._runners:
            self._runners[backend] = tuning_of(task.target).runner()
        return self._runners[backend]

    def _trial(self, task: Task, built: Built) -> Trial:
        state, point = self._states[task.key], built.point
        assert point is not None
        if built.path is None:
            return _binary(built)
        if built.code in state.trials:
            return replace(state.trials[built.code], point=point)
        found, is_default = self._timed(task, built, state.incumbent, self._rule), built.code == state.code
        if isinstance(found, Pairs):
            trial = _measured(built, found, state.ratio, self._rule)
            if is_default:
                trial = replace(trial, ratio=1.0)
            elif found.verdict is Verdict.FASTER:
                if state.incumbent != state.default:  # chained ratios would multiply their noise
                    trial = self._against_default(task, built, self._rule)
                if trial.ok and trial.ratio is not None and trial.ratio < state.ratio:
                    state.incumbent, state.ratio = built.path, trial.ratio
        elif is_default:
            reason = f"its default configuration {found[0]}: {found[1]}"
            raise TaskNotTunable(task=task.label, reason=reason)
        else:
            trial = Trial(point, found[0], said=found[1])
        state.trials[built.code] = trial
        return trial

    def _against_default(self, task: Task, built: Built, rule: Rule) -> Trial:
        found = self._timed(task, built, self._states[task.key].default, rule)
        if isinstance(found, Pairs):
            return _measured(built, found, 1.0, rule)
        assert built.point is not None
        return Trial(built.point, found[0], said=found[1], figures=built.figures)

    def _timed(self, task: Task, built: Built, incumbent: Path, rule: Rule) -> Pairs | tuple[Outcome, str]:
        try:
            return self._runner_of(task).measure(task, built, incumbent, rule)
        except (Refused, Ended, TookTooLong) as error:
            reason = f"its reference cannot be computed: {error}"
            raise TaskNotTunable(task=task.label, reason=reason) from None


def _binary(built: Built) -> Trial:
    """Of a point that is not run."""
    assert built.point is not None
    outcome = Outcome.NOT_BUILT if built.path is None else Outcome.BUILT
    return Trial(built.point, outcome, said=built.said, figures=built.figures)


def _measured(built: Built, found: Pairs, scale: float, rule: Rule) -> Trial:
    assert built.point is not None
    ratio, spread = scale * found.ratio, scale * found.spread(rule)
    return Trial(built.point, Outcome.MEASURED, ratio, median(found.candidate), spread, figures=built.figures)
