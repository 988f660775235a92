"""Trials: steps of a searched plan and of close ones, on the processes that run, before one is chosen.

The cost model orders plans that differ by more than its error. Of those that are closer, a few steps of a
copy of the model decide, all in turn.
"""

from __future__ import annotations

import copy
import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from shardc.cache import disk
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.search import NoTrials
from shardc.diagnostics.text import table
from shardc.environment import RANK
from shardc.frontend.step.model_state import has_storage
from shardc.planning.auto.kept import candidate_json, candidate_of, load, name_of
from shardc.planning.auto.measured.close import Estimated, close_plans
from shardc.planning.auto.search import SearchedPlan
from shardc.planning.candidates import Candidate
from shardc.planning.verdict import time_text
from shardc.runtime.comm.connect import join, own_device
from shardc.runtime.report import progress
from shardc.runtime.report.logs import PLAN
from shardc.runtime.state import Source
from shardc.step.arguments import processes
from shardc.step.compile_step import compile_step

TRIALS = 6
"""Default of the plans that processes of one machine try."""
WARM, FIRST, TURNS = 2, 3, 9
"""Steps of each plan: before the clock starts, before slow plans are dropped, and in all."""
SLOW = 1.25
"""Times of the fastest plan's median after the first steps; slower plans are dropped."""
LIMIT_S = 20.0
"""Seconds of steps after which the turn at hand is the last, if it is timed."""

Run = Callable[[], object]
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """Plan with the seconds of its step: by the cost model, and the median measured on the slowest rank."""

    candidate: Candidate
    estimated_s: float
    measured_s: float


@dataclass(frozen=True)
class Subject:
    """Arguments of ``compile_step`` other than options."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: object
    loss: Callable[..., torch.Tensor] | None
    state: Source

    @property
    def problem(self) -> str:
        """Why no copy of the model can run; empty if one can."""
        if self.state is None and not all(map(has_storage, self.model.parameters())):
            return "the model has no values"
        try:
            self._copy()
        except (TypeError, RuntimeError, copy.Error) as error:
            return f"the model cannot be copied ({error})"
        return ""

    def _copy(self) -> tuple[torch.nn.Module, torch.optim.Optimizer, Callable[..., torch.Tensor] | None]:
        return copy.deepcopy((self.model, self.optimizer, self.loss))

    def tried(self, options: Mapping[str, Any]) -> Run:
        """Compile a copy of the model with ``options``, join the ranks, and return its step."""
        model, optimizer, loss = self._copy()
        step = compile_step(model, optimizer, self.batch, loss=loss, state=self.state, **options)
        running = step.running
        return lambda: running(self.batch)


def trials_asked(subject: Subject, options: Mapping[str, object]) -> int:
    """Return the number of plans to try; 0 if none. Raises NoTrials if the user asked for what cannot be."""
    asked = options.get("search_trials")
    count = asked if isinstance(asked, int) else 0 if "cluster" in options else TRIALS
    is_launched = dist.is_available() and (dist.is_initialized() or RANK.text() is not None)
    if count < 2:
        return 0
    is_alone = not is_launched or (processes() or 1) == 1
    problem = "there are no other processes" if is_alone else subject.problem
    if problem and asked is not None:
        raise NoTrials(problem=problem)
    return 0 if problem else count


@progress.work("trials")
def trials_of(found: SearchedPlan, count: int, make: Callable[[Candidate], Run]) -> Sequence[Trial]:
    """Run steps of a searched plan and of up to ``count`` - 1 close ones; the fastest comes first.

    Without close ones nothing runs, and the result is empty. All ranks call this together, and get the same
    result. It is cached with the search's question. ``make``:
    compiles a plan for a copy of the model, joins the ranks, and returns its step.
    """
    if count < 2:
        return []
    join(own_device())
    name, is_first = name_of((found.searches.key, "trials", count)), dist.get_rank() == 0
    known = _agreed(load(name, _read) if is_first and name else None)
    if known is not None:
        return known
    plans = _agreed(close_plans(found.searches, found.answer, count) if is_first else [])
    trials = _run(plans, make) if len(plans) > 1 else []
    if is_first and name:
        disk.keep(name, json.dumps([_packed(trial) for trial in trials]).encode())
    return trials


def text_of(trials: Sequence[Trial]) -> list[str]:
    """Return lines on the trials, the fastest first."""
    rows = [("plan that was tried", "estimated step", "measured step")]
    for trial in trials:
        rows.append((trial.candidate.text, time_text(trial.estimated_s), time_text(trial.measured_s)))
    return table(rows, right=(1, 2))


def _agreed(value: T) -> T:
    """Return the first rank's value on all ranks."""
    given = [value]
    dist.broadcast_object_list(given)
    return given[0]


def _run(plans: Sequence[Estimated], make: Callable[[Candidate], Run]) -> list[Trial]:
    steps = dict[int, Run]()
    for number, plan in enumerate(plans):
        progress.step(f"trial {number + 1} of {len(plans)}: {plan.candidate.text}")
        try:
            steps[number] = make(plan.candidate)
        except ShardcError as error:
            if not number:
                raise
            PLAN.info("%s is not tried: %s", plan.candidate.text, next(iter(str(error).splitlines())))
    taken = measured(steps)
    steps.clear()
    gc.collect()  # steps hold reference cycles, and as much state as the model's
    return [Trial(plans[number].candidate, plans[number].seconds, taken[number]) for number in taken]


def measured(steps: Mapping[int, Run]) -> dict[int, float]:
    """Return the median seconds of each step on the slowest rank, the fastest step first.

    Steps run in turn between barriers. One that is clearly slower than another is dropped after a few turns,
    and comes after those that stay.
    """
    taken: dict[int, list[float]] = {number: [] for number in steps}
    left, spent_s = list(steps), 0.0
    for turn in range(WARM + TURNS):
        for number in left[turn % len(left) :] + left[: turn % len(left)]:
            progress.step(f"step {turn + 1} of {WARM + TURNS} of {len(left)} plans")
            seconds = _seconds(steps[number])
            spent_s += seconds
            if turn >= WARM:
                taken[number].append(seconds)
        if turn == WARM + FIRST - 1:
            least_s = min(median(taken[number]) for number in left)
            left = [number for number in left if median(taken[number]) <= SLOW * least_s]
        if turn >= WARM and spent_s > LIMIT_S:
            break
    found = {number: median(seconds) for number, seconds in taken.items()}
    return dict(sorted(found.items(), key=lambda item: (item[0] not in left, item[1])))


def _seconds(step: Run) -> float:
    """Run a step on all ranks, and return the seconds of the slowest, equal on all ranks."""
    dist.barrier()
    start = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    every: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(every, time.perf_counter() - start)
    return max(every)


def _read(rows: Sequence[Mapping[str, Any]]) -> list[Trial]:
    return [Trial(candidate_of(row["candidate"]), row["estimated_s"], row["measured_s"]) for row in rows]


def _packed(trial: Trial) -> dict[str, object]:
    held = {"estimated_s": trial.estimated_s, "measured_s": trial.measured_s}
    return {"candidate": candidate_json(trial.candidate), **held}
