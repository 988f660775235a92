"""``Measurer``: compiles points and times them; the results are trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from shardc.backends.tuning.decision import Pairs, Rule, Verdict
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.runner import Runner
from shardc.backends.tuning.target import Builder
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built, Outcome, Trial
from shardc.diagnostics.tuner import TaskNotTunable
from shardc.tuner.task_tuning import task_backend, tuning_of
from shardc.workers.process import Ended, Refused, TookTooLong

CONFIRM = Rule(most=60, width=0.005, clear=float("inf"), budget_s=4.0)
"""Rule of the final comparison with the default, whose ratio is reported."""


@dataclass
class _State:
    """State of a task: the default's code and path, and the best so far with its ratio to the default."""

    code: str
    default: Path
    incumbent: Path
    ratio: float = 1.0
    trials: dict[str, Trial] = field(default_factory=dict)
    """Machine code -> trial. Points with the same machine code are measured once."""


class Measurer:
    """Builder and timer of points, a context manager.

    Points are built in several ``processes``. Each is timed in alternation with the incumbent, which is the
    default at first and then the best so far. A better point is compared with the default directly, so the
    ratios of a task's trials are comparable. Points for a device that this machine lacks are built, not run.

    ``builders`` and ``runners``: replacements of the targets' own, by backend. Tasks on one thread are timed
    with the thread's clock, so that other points can be built at the same time.
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
        """End the processes and remove the built files."""
        for each in (*self._builders.values(), *self._runners.values()):
            each.close()

    def begin(self, task: Task, default: Point | None = None, incumbent: Trial | None = None) -> None:
        """Set the default (None: the kernel without configuration) and the best known trial.

        Raises TaskNotTunable if the default cannot be built.
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
        """Yield a trial for each point, in order, as soon as it is known.

        Raises TaskNotTunable if the default computes wrong results or there is no reference. For GPUs, raises
        UnknownTarget, TritonMissing and TritonTooOld.
        """
        if not self.runs(task):
            yield from map(_binary, self._builder_of(task).build(task, points))
            return
        if task.key not in self._states:
            self.begin(task)
        built = self._builder_of(task).build(task, points)
        if task.threads > 1 or tuning_of(task.target).timed_alone:
            built = list(built)  # without the thread's clock, nothing may be built while points are timed
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
        """Return True if points of a task can run on this machine. Raises UnknownTarget."""
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
    """Return the trial of a point that is not run."""
    assert built.point is not None
    outcome = Outcome.NOT_BUILT if built.path is None else Outcome.BUILT
    return Trial(built.point, outcome, said=built.said, figures=built.figures)


def _measured(built: Built, found: Pairs, scale: float, rule: Rule) -> Trial:
    assert built.point is not None
    ratio, spread = scale * found.ratio, scale * found.spread(rule)
    return Trial(built.point, Outcome.MEASURED, ratio, median(found.candidate), spread, figures=built.figures)
