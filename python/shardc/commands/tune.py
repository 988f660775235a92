"""``shardc tune``: tunes the kernels of a script's step or of an artefact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import cast

from torch_mlir import ir

from shardc.artefact.folder import read_manifest
from shardc.backends.base import Target
from shardc.backends.registry import find_target, local_target
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Space
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Trial
from shardc.commands.explain_function import Options, call_compiled
from shardc.commands.module_file import read_module
from shardc.commands.script import read_script
from shardc.compiler.measured_regions import Lost, collect_lost
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.diagnostics.tuner import NothingToTune
from shardc.dynamo.explanations import collect_modules
from shardc.options.kernels import Kernels, Matmuls
from shardc.options.parallelism import Parallelism
from shardc.options.step import StepOptions
from shardc.passes.fuse.bodies.flat import FLAT, SIZE, element_count
from shardc.runtime.arguments import number_given, path_given
from shardc.step.fuse_step import fused_step
from shardc.text_files import read_text
from shardc.tuner.cost_model.boosted_trees import BoostedTrees
from shardc.tuner.database.database import open_database
from shardc.tuner.database.shipped import best_shipped
from shardc.tuner.extract_tasks import kernels_of, tasks_of
from shardc.tuner.measurer import Measurer
from shardc.tuner.session import Budget, Remembers, Round, Session, SessionResult
from shardc.tuner.session import TuningInterrupted as TuningInterrupted  # for the command line
from shardc.tuner.space.constraints import Constraints, check_names, constrain, read_constraints
from shardc.tuner.space.of_task import space_of
from shardc.tuner.task_scheduler import Job

NO_CONSTRAINTS = Constraints()
ON_ONE_DEVICE = StepOptions(Parallelism({"data": 1}), kernels=Kernels(fuse=False))
OnRound = Callable[[Round], None]


@dataclass(frozen=True)
class Search:
    """Settings of a search: ``strategy``, ``seed``, and whether to ``resume`` from earlier trials."""

    strategy: str = "evolutionary"
    seed: int = 0
    resume: bool = True


def tune_path(
    path: Path | str,
    *,
    target: str | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    regret: float = Budget.regret,
    search: Search = Search(),
    constraints: Constraints = NO_CONSTRAINTS,
    matmuls: str = "auto",
    on_round: OnRound | None = None,
) -> SessionResult:
    """Search tile configurations for the kernels of a training step, and record every trial.

    Later compiles use the best configurations. An interrupted session continues at the next call.

    Args:
        path: A script with ``build()``, whose step is tuned on one device; an artefact; or a level-4 MLIR
            file.
        target: Target of the kernels, such as ``"sm_90"``. A GPU need not be present: kernels that cannot run
            here are compiled, and ranked by models. Default: the artefact's target, or this machine.
        trials: The most points that the session tries, over all kernels. Default: no limit.
        seconds: The most seconds that the session takes. Default: no limit.
        regret: The session ends when further trials are expected to save less than this share of the
            kernels' time, from 0 to 1.
        search: Strategy, seed, and whether trials of earlier sessions count.
        constraints: Points to pin, forbid and add.
        matmuls: ``"auto"``, ``"extern"`` or ``"generated"``, as in :class:`shardc.Kernels`.
        on_round: Called after each round of trials. Default: nothing is called.

    Returns:
        Each kernel's best configuration, and how the session ended.

    Raises:
        BadScript, ScriptFailed, NotAnArtefact: The path cannot be read.
        UnknownTarget, UnknownStrategy, TritonMissing: An option cannot be honoured.
        NothingToTune: There are no kernels.
        TuningInterrupted: The user ended the session. Its ``result`` holds what was found until then.

    Example:
        >>> found = shardc.tune("train.py", trials=0)  # the models' choice, without a trial
        >>> found.trials
        0
    """
    checked = Kernels(target=target, matmuls=cast("Matmuls", matmuls))
    checked.check_step()
    for name, value in {"trials": trials, "seconds": seconds, "regret": regret}.items():
        if value is not None and number_given(value, name) < 0:
            raise BadArgument(argument=name, given=value, expected="a number from 0", hint="see shardc tune")
    jobs = jobs_of(path_given(path, "path"), checked.target, checked.matmuls)
    return tune_found(jobs, Budget(trials, seconds, regret), search, constraints, on_round)


def tune_found(
    jobs: Sequence[Job],
    budget: Budget,
    search: Search = Search(),
    constraints: Constraints = NO_CONSTRAINTS,
    on_round: OnRound | None = None,
) -> SessionResult:
    """Tune ``jobs`` on this machine, with its database."""
    with open_database() as database, Measurer() as measurer:
        return tune_jobs(jobs, database, measurer, budget, search, constraints, on_round)


def tune_jobs(
    jobs: Sequence[Job],
    database: Remembers,
    measurer: Measurer,
    budget: Budget,
    search: Search = Search(),
    constraints: Constraints = NO_CONSTRAINTS,
    on_round: OnRound | None = None,
) -> SessionResult:
    """Run a session over ``jobs`` whose candidates boosted trees rank. Raises UnknownConstraint."""
    session = Session(
        database if search.resume else _Anew(database),
        measurer,
        spaces=constrained_spaces(jobs, constraints),
        model=BoostedTrees(),
        budget=budget,
        strategy=search.strategy,
        seed=search.seed,
        hints=_shipped,
        on_round=on_round,
    )
    return session.tune(jobs)


def _shipped(task: Task) -> list[Point]:
    """Return the configuration that shardc ships for a kernel, or for one of similar sizes."""
    found = best_shipped(task)
    return [found.point] if found else []


def jobs_of(path: Path, target: str | None = None, matmuls: str = "auto") -> list[Job]:
    """Return the kernels of ``path`` with the number of calls per step. Raises as :func:`tune_path` does."""
    manifest = read_manifest(path) if path.is_dir() else None
    if manifest is not None and not manifest["kernels"]:
        raise NothingToTune(path=path, where=str(path))
    if target is None and manifest is not None:
        target = manifest["target"]
    found_target = local_target() if target is None else find_target(target)
    with collect_lost() as lost:
        module = _module(path, found_target, matmuls)
    found = _jobs([module], lost.values(), found_target)
    if not found:
        raise NothingToTune(path=path, where=str(path))
    return found


def jobs_of_function(
    function: Callable[..., object], *args: object, options: Options | None = None, **kwargs: object
) -> list[Job]:
    """Return the kernels that ``torch.compile(function, backend="shardc")`` makes for these arguments.

    Kernels of the backward are included if a result needs gradients.
    """
    with collect_modules() as modules, collect_lost() as lost:
        call_compiled(function, args, kwargs, options)
    return _jobs(modules, lost.values())


def _jobs(modules: Sequence[ir.Module], lost: Iterable[Lost], target: Target | None = None) -> list[Job]:
    """Return the kernels of modules, then kernels that would replace library calls if they were faster."""
    jobs: dict[Task, Job] = {}
    for module in modules:
        for task, kernels in kernels_of(module, target).items():
            # ratio of a call's size to the task's
            sizes = [element_count(k) / SIZE if FLAT in k.attributes else 1.0 for k in kernels]
            before = jobs.get(task, Job(task, 0))
            calls = before.calls + len(kernels)
            jobs[task] = Job(task, calls, (before.weight + sum(sizes)) / calls)
    for region in lost:
        for task, calls in tasks_of(region.module, target):
            jobs.setdefault(task, Job(task, calls * region.times, needs=region.needs))
    return list(jobs.values())


def constraints_of(pins: Mapping[str, int], file: Path | None = None) -> Constraints:
    """Return the constraints of a JSON file, if given, overridden by ``pins``.

    Raises UnreadableInput, MalformedConstraints, UnknownConstraint.
    """
    constraints = NO_CONSTRAINTS if file is None else read_constraints(read_text(file), str(file))
    return replace(constraints, pin={**constraints.pin, **pins}) if pins else constraints


def constrained_spaces(
    jobs: Sequence[Job], constraints: Constraints = NO_CONSTRAINTS
) -> Callable[[Task], Space]:
    """Return a function that gives each task's space under the user's constraints. Raises UnknownConstraint.

    The function raises EmptySpace, KernelNotSupported.
    """
    if constraints != NO_CONSTRAINTS:
        check_names(constraints, [space for job in jobs if (space := _known_space(job.task)) is not None])
    return cache(lambda task: constrain(_space(task), constraints))


def _known_space(task: Task) -> Space | None:
    try:
        return _space(task)
    except (KernelNotSupported, TritonKernelNotSupported):
        return None


_space = cache(space_of)


def _module(path: Path, target: Target, matmuls: str) -> ir.Module:
    """Return the program at level 4."""
    if path.suffix != ".py":
        return read_module(path / "levels" / "4-kernel.mlir" if path.is_dir() else path)
    target.check()
    step = read_script(path).compile(ON_ONE_DEVICE)
    return fused_step(step.compiled, target, matmuls).module


@dataclass
class _Anew:
    """Database that hides trials from before this session."""

    database: Remembers
    recorded: dict[str, list[Trial]] = field(default_factory=dict)

    def trials(self, task: Task) -> Sequence[Trial]:
        return self.recorded.get(task.key, [])

    def record(self, task: Task, trials: Sequence[Trial]) -> None:
        self.recorded.setdefault(task.key, []).extend(trials)
        self.database.record(task, trials)
