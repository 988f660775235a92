"""``Session``: a search over the kernels of a model, resumed from a database's trials.

A session stores no state of its own. Its strategies start again from the same seed, and proposals that are in
the database are not measured again. So a killed session continues where it stopped. Trials from the database
count against the budget, too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial, fastest_first
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.diagnostics.tuner import EmptySpace, TaskNotTunable
from shardc.tuner.cost_model.boosted_trees import BoostedTrees
from shardc.tuner.cost_model.kernel_features import kernel_features
from shardc.tuner.measurer import Measurer
from shardc.tuner.search_strategy.base import SearchStrategy
from shardc.tuner.search_strategy.registry import MakeStrategy, find_strategy
from shardc.tuner.task_scheduler import AHEAD, Job, Progress, TaskScheduler

BATCH = 8
"""Trials of a round."""
REGRET = 0.01
"""Expected saving, as a share of the step's time, below which a search ends."""
RANKED = 256
"""Number of points, those with the smallest estimates, from which the cost model picks without a trial."""
BUILT = 16
"""Number of trials of a kernel for a GPU that this machine lacks. They are compiled, not run."""
CONFIRMED = 0.99
"""Ratio above which a best point is not confirmed by a second measurement."""
LOOKS = 4
"""Maximum number of a kernel's best points to confirm. If one proves slower, the next is confirmed."""
INTERRUPTED = "interrupted"
"""Text of ``stopped`` for a session that the user ended."""


class Remembers(Protocol):
    """Part of :class:`shardc.tuner.database.Database` that a session needs."""

    def trials(self, task: Task) -> Sequence[Trial]: ...

    def record(self, task: Task, trials: Sequence[Trial]) -> None: ...


@dataclass(frozen=True)
class Budget:
    """Limits of a session. None means no limit. ``regret``: least expected saving for which it continues."""

    trials: int | None = None
    seconds: float | None = None
    regret: float = REGRET


@dataclass(frozen=True)
class Round:
    """Event of a round of trials: its start, a measured trial, or its end.

    ``trials``: empty at the start, one trial while measuring, and all at the end. ``measured``: how many of
    them are not from the database. ``trials_done``, ``trials_left`` and ``seconds_left`` are those of the
    session. ``step_ratio``: time of a step's kernels relative to the defaults'.
    """

    progress: Progress
    trials: Sequence[Trial]
    measured: int
    trials_done: int
    trials_left: int | None
    seconds_left: float | None
    step_ratio: float


@dataclass(frozen=True)
class TaskResult:
    """Result of tuning one kernel.

    ``analytic``: the models' choice without a trial. ``chosen``: the fastest legal point, the analytic one if
    none was tried, or None if none beat the untuned kernel. ``ratio``: its time relative to the untuned
    kernel's ``default_s``. ``said``: a note for the user.
    """

    job: Job
    analytic: Point | None
    chosen: Point | None
    ratio: float = 1.0
    default_s: float | None = None
    trials: Sequence[Trial] = ()
    said: str = ""


@dataclass(frozen=True)
class SessionResult:
    """Result of a tuning session, returned by :func:`shardc.tune`.

    ``tasks``: results by kernel. ``trials``: number of trials. ``measured``: how many of them ran; the others
    were in the database. ``stopped``: why the session ended. ``seconds``: how long it took. ``regret``: share
    of the kernels' time that further trials are expected to save.
    """

    tasks: Sequence[TaskResult]
    stopped: str
    trials: int
    measured: int
    seconds: float
    regret: float

    @property
    def step_ratio(self) -> float:
        """Time of all timed kernels of a step, relative to their default configurations."""
        return _step_ratio((t.job, t.default_s, t.ratio) for t in self.tasks if t.default_s is not None)


class TuningInterrupted(KeyboardInterrupt):
    """Raised when the user ends a session. ``result``: its result so far. All trials are in the database."""

    def __init__(self, result: SessionResult) -> None:
        super().__init__()
        self.result = result


@dataclass(eq=False, kw_only=True)
class _Open(Progress):
    """Job with a space to search.

    ``known``: the first trial of each point, from which a search is resumed. ``latest``: the last trial of
    each point, which decides the result. ``first``: the models' choice without a trial.
    """

    space: Space
    first: Point
    strategy: SearchStrategy
    known: dict[Point, Trial]
    latest: dict[Point, Trial]
    begun: bool = False
    said: str = ""


@dataclass
class Session:
    """Search in the ``spaces`` of kernels, ranked by ``model``. ``hints``: points of a task to try first."""

    database: Remembers
    measurer: Measurer
    spaces: Callable[[Task], Space]
    model: BoostedTrees
    budget: Budget = Budget()
    strategy: str = "evolutionary"
    seed: int = 0
    hints: Callable[[Task], Sequence[Point]] = lambda _: ()
    on_round: Callable[[Round], None] | None = None
    now: Callable[[], float] = time.monotonic
    open: list[_Open] = field(default_factory=list)
    closed: list[TaskResult] = field(default_factory=list)
    done: int = 0
    measured: int = 0
    running: int = 0  # trials of a round that has not ended

    def __post_init__(self) -> None:
        self.started = self.now()

    def tune(self, jobs: Sequence[Job]) -> SessionResult:
        """Search configurations of ``jobs``.

        The search ends when the budget is spent, every point was tried, or more trials are expected to save
        too little. Ratios are relative to the untuned kernel. Raises UnknownStrategy, and TuningInterrupted
        for a KeyboardInterrupt.
        """
        make = find_strategy(self.strategy)
        for job in jobs:
            self._add(job, make)
        return self._run()

    def _add(self, job: Job, make: MakeStrategy) -> None:
        try:
            space = self.spaces(job.task)
            first = _first(job.task, space, self.model)
        except (EmptySpace, KernelNotSupported, TritonKernelNotSupported) as error:
            self.closed.append(TaskResult(job, None, None, said=str(error).partition("\n")[0]))
            return
        draw = random.Random(f"{self.seed} {job.task.key}")
        made = make(space, draw, lambda points: self.model.scores(job.task, space, points))
        found = self.database.trials(job.task)
        latest = {t.point: t for t in found if space.refusal(t.point) is None}
        known = {t.point: t for t in reversed(found) if t.point in latest}
        gone = len({t.point for t in found}) - len(known)
        said = f"{gone} trials in the database no longer match this kernel's space: ignored" if gone else ""
        progress = _Open(
            job=job,
            estimate_s=space.estimate_s(first),
            exhausted=len(list(islice(space.points(), 2))) < 2,  # no choice
            space=space,
            first=first,
            strategy=made,
            known=known,
            latest=latest,
            said=said,
        )
        self.open.append(progress)

    def _run(self) -> SessionResult:
        scheduler = TaskScheduler(self.open, BATCH)
        try:
            while not (stopped := self._stopped(scheduler)):
                progress = scheduler.next()
                assert progress is not None
                left = BATCH if self.budget.trials is None else self.budget.trials - self.done
                self._round(progress, min(BATCH, left))
            return self._ended(scheduler, stopped)
        except KeyboardInterrupt:
            for progress in self.open:
                progress.begun = False  # nothing is measured any more
            self._count(self.running)
            raise TuningInterrupted(self._ended(scheduler, INTERRUPTED)) from None

    def _ended(self, scheduler: TaskScheduler[_Open], stopped: str) -> SessionResult:
        regret, tasks = scheduler.regret(), [self._result(p) for p in self.open]
        seconds = self.now() - self.started
        return SessionResult([*tasks, *self.closed], stopped, self.done, self.measured, seconds, regret)

    def _stopped(self, scheduler: TaskScheduler[_Open]) -> str:
        """Return why there is no next round; empty if there is one."""
        budget, spent_s = self.budget, self.now() - self.started
        if 0 in (budget.trials, budget.seconds):
            return "a budget of zero: the analytic choice"
        if budget.trials is not None and self.done >= budget.trials:
            return f"{budget.trials} trials are spent"
        if budget.seconds is not None and spent_s >= budget.seconds:
            return f"{budget.seconds:g} s are spent"
        if scheduler.next() is None:
            return "every point was tried" if self.open else "there is nothing to tune"
        if (regret := scheduler.regret()) < budget.regret:
            saved = f"{AHEAD} more trials of each kernel are expected to save {regret:.2%} of their time"
            return f"{saved}, less than {budget.regret:.2%}"
        return ""

    def _round(self, progress: _Open, count: int) -> None:
        task = progress.job.task
        progress.strategy.hint([*self.hints(task), *self._similar(progress)])
        points = progress.strategy.propose(count)
        new = [p for p in points if p not in progress.known]
        self._say(progress)
        measured: list[Trial] = []
        try:
            for trial in self._measure(progress, new):
                self.database.record(task, [trial])
                progress.known[trial.point] = progress.latest[trial.point] = trial
                measured.append(trial)
                self.measured, self.running = self.measured + 1, len(points) - len(new) + len(measured)
                self._say(progress, [trial], 1)
        except TaskNotTunable as error:
            progress.exhausted, progress.said = True, str(error).partition("\n")[0]
            self._count(self.running)
            return
        trials = [progress.known[p] for p in points]
        progress.trials += trials
        progress.strategy.learn(trials)
        self.model.learn(task, progress.space, trials)
        built = sum(t.outcome is Outcome.BUILT for t in progress.trials)
        progress.exhausted = len(points) < count or built >= BUILT
        self._count(len(points))
        self._say(progress, trials, len(measured))

    def _count(self, trials: int) -> None:
        self.done, self.running = self.done + trials, 0

    def _measure(self, progress: _Open, points: Sequence[Point]) -> Iterable[Trial]:
        if not points:
            return []
        if not progress.begun:  # ratios are to what is compiled untuned
            progress.begun = True
            self.measurer.begin(progress.job.task, None, progress.best)
        return self.measurer.measure(progress.job.task, points)

    def _similar(self, progress: _Open) -> list[Point]:
        """Return the best points of kernels with the same ops in other sizes."""
        family = kernel_features(progress.job.task.text).family
        others = [(p.job.task, p.best) for p in self.open if p is not progress]
        return [t.point for task, t in others if t and kernel_features(task.text).family == family]

    def _say(self, progress: _Open, trials: Sequence[Trial] = (), measured: int = 0) -> None:
        if self.on_round is None:
            return
        budget, done = self.budget, self.done + self.running
        trials_left = None if budget.trials is None else budget.trials - done
        left_s = None if budget.seconds is None else max(0.0, budget.seconds - (self.now() - self.started))
        ratio = _step_ratio((p.job, p.default_s, p.best_ratio) for p in self.open if p.default_s is not None)
        self.on_round(Round(progress, trials, measured, done, trials_left, left_s, ratio))

    def _result(self, progress: _Open) -> TaskResult:
        best, first, default_s = self._best(progress), progress.first, progress.default_s
        if best is None or best.ratio is None:
            chosen, ratio = self._compiled(progress) or first, 1.0
        else:
            chosen, ratio = (best.point, best.ratio) if best.ratio < 1.0 else (None, 1.0)
            if default_s is None and best.seconds is not None:  # known before, and not tried again
                default_s = best.seconds / best.ratio
        trials, said = tuple(progress.trials), progress.said
        return TaskResult(progress.job, first, chosen, ratio, default_s, trials, said)

    def _best(self, progress: _Open) -> Trial | None:
        """Return the task's best known trial, of this session or an earlier one.

        A trial of this session is confirmed by a second measurement. If it is then no longer the fastest, the
        next one is confirmed.
        """
        task, looks = progress.job.task, 0
        while True:
            best = next(iter(fastest_first(progress.latest.values())), None)
            if best is None or not progress.begun or best.ratio is None or best.ratio >= CONFIRMED:
                return best
            if best is not progress.known[best.point] or looks == LOOKS:
                return best
            looks += 1
            try:
                confirmed = self.measurer.confirm(task, best.point)
            except TaskNotTunable as error:
                progress.said = str(error).partition("\n")[0]
                return best
            self.database.record(task, [confirmed])
            progress.latest[best.point] = confirmed

    def _compiled(self, progress: _Open) -> Point | None:
        """Return the cost model's best among the compiled points that spill least."""
        built = [t for t in progress.latest.values() if t.outcome is Outcome.BUILT]
        scores = self.model.scores(progress.job.task, progress.space, [t.point for t in built])
        ranks = [(t.figures.get("spill_bytes", 0), s, t.point) for s, t in zip(scores, built, strict=True)]
        return min(ranks)[2] if ranks else None


def _first(task: Task, space: Space, model: BoostedTrees) -> Point:
    """Return the choice without a trial: the user's point, or the cost model's best. Raises EmptySpace."""
    ranked = space.ranked(RANKED)
    if not ranked:
        raise EmptySpace(sketches=", ".join(s.name for s in space.sketches), pinned=str(dict(space.pinned)))
    if ranked[0] in space.added:
        return ranked[0]
    scores = model.scores(task, space, ranked)
    return min(zip(scores, range(len(ranked)), ranked, strict=True))[2]


def _step_ratio(timed: Iterable[tuple[Job, float, float]]) -> float:
    """Return the time of all kernels and calls of a step, relative to their untuned time."""
    found = [(job.weight * s, job.needs, min(job.needs, ratio)) for job, s, ratio in timed]
    before_s = sum(s * needs for s, needs, _ in found)
    return sum(s * ratio for s, _, ratio in found) / before_s if before_s else 1.0
