"""Tuning session as text: a table of kernels with sparklines of the best so far, and their spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from shardc.backends.tuning.space import Parameter, Space
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.diagnostics.text import table
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.diagnostics.tuner import EmptySpace
from shardc.tuner.session import INTERRUPTED, SessionResult, TaskResult
from shardc.tuner.task_scheduler import Job

FIGURES = ["untuned us", "best us", "ratio", "of step"]
HEADS = ["kernel", "calls", *FIGURES, "trials", "best so far", "configuration"]
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24
"""Characters of a sparkline."""
COUNTED = 20_000
"""Number of points at which counting a space stops."""


def best_so_far(trials: Iterable[Trial]) -> list[float]:
    """Return the best ratio after each trial; 1.0, that of the untuned kernel, until one is better."""
    found, best = [], 1.0
    for trial in trials:
        best = min(best, trial.ratio) if trial.ok and trial.ratio is not None else best
        found.append(best)
    return found


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Draw ``values`` between 0 and 1 as at most ``width`` bars. A bar for several values shows the last."""
    bars = min(width, len(values))
    shown = [values[(n + 1) * len(values) // bars - 1] for n in range(bars)]
    return "".join(BARS[min(len(BARS) - 1, max(0, round(v * len(BARS)) - 1))] for v in shown)


def by_time(tasks: Iterable[TaskResult]) -> list[TaskResult]:
    """Sort kernels by their untuned part of the step's time, the largest first."""
    return sorted(tasks, key=lambda t: -(t.default_s or 0.0) * t.job.weight)


def tuning_text(result: SessionResult) -> str:
    """Return a line for each kernel, those with most of the step's time first, and a summary."""
    order = by_time(result.tasks)
    total_s = sum((t.default_s or 0.0) * t.job.weight * t.job.needs for t in order)
    said = [f"{task.job.task.label}: {task.said}" for task in order if task.said]
    return "\n".join(
        [*table([HEADS, *(_row(task, total_s) for task in order)]), "", *said, *_summary(result)]
    )


def _row(task: TaskResult, total_s: float) -> list[str]:
    """Return a kernel's row. ``total_s``: untuned time of all kernels and calls of a step."""
    figures, spark = ["-"] * 4, ""
    if task.default_s is not None:
        share = task.default_s * task.job.weight * task.job.needs / (total_s or 1.0)  # no elements, no time
        times = f"{task.default_s * 1e6:.1f}", f"{task.default_s * task.ratio * 1e6:.1f}"
        figures, spark = [*times, f"{task.ratio:.3f}", f"{share:.1%}"], sparkline(best_so_far(task.trials))
    trials = str(len(task.trials))
    return [task.job.task.label, str(task.job.calls), *figures, trials, spark, _choice(task)]


def _choice(task: TaskResult) -> str:
    if task.ratio >= task.job.needs and task.job.needs < 1.0:
        return f"stays a library's call, which takes {task.job.needs:.3f} of the kernel untuned"
    if task.chosen is None:
        return "-" if task.analytic is None else "as it is"
    said = f"analytic {task.chosen}" if task.chosen == task.analytic else str(task.chosen)
    return f"{said}{_binary(task)}"


def _binary(task: TaskResult) -> str:
    """Return the registers and memory of the chosen point's binary, if it was compiled but not run."""
    built = [t.figures for t in task.trials if t.point == task.chosen and t.outcome is Outcome.BUILT]
    if not built or not (figures := built[0]):
        return ""
    spilled = f", {figures['spill_bytes']} bytes spilled" if figures["spill_bytes"] else ""
    return f": {figures['registers']} registers, {figures['shared_bytes'] / 1024:g} KiB shared{spilled}"


def _summary(result: SessionResult) -> list[str]:
    known = result.trials - result.measured
    remembered = f", {known} of which were in the database" if known else ""
    lines = [f"stopped: {result.stopped}", f"{result.trials} trials in {result.seconds:.0f} s{remembered}"]
    if any(t.default_s is not None for t in result.tasks):
        lines.append(f"the kernels of a step take {result.step_ratio:.3f} of their untuned time")
    untimed = [t for t in result.tasks if t.chosen is not None and t.default_s is None]
    if any(t.trials for t in untimed):
        lines.append("kernels without times were compiled and ranked by models: their target is not here")
    if any(t.chosen == t.analytic and not t.trials for t in untimed):
        said = "what the models would choose, not tried; what is compiled stays as it is there"
        lines.append(f"analytic: {said}")
    if result.stopped == INTERRUPTED:
        lines.append("every trial is remembered: the same command goes on from here")
    return lines


def spaces_text(jobs: Iterable[Job], spaces: Callable[[Task], Space]) -> str:
    """Return text on each kernel's space: sketches, parameters, legal points and the best estimates."""
    return "\n\n".join(_space_text(job, spaces) for job in jobs)


def _space_text(job: Job, spaces: Callable[[Task], Space]) -> str:
    title = f"{job.task.label}, {job.calls} {'call' if job.calls == 1 else 'calls'}"
    try:
        space = spaces(job.task)
        first = space.ranked(3)
    except (EmptySpace, KernelNotSupported, TritonKernelNotSupported) as error:
        return f"{title}: {error}"
    count = sum(1 for _ in islice(space.points(), COUNTED + 1))
    lines = [f"{title}: {f'more than {COUNTED}' if count > COUNTED else count} legal points"]
    for sketch in space.sketches:
        lines.append(f"  {sketch.name}")
        lines += [f"    {p.name}: {_values(p, space.pinned)}" for p in sketch.parameters]
    estimates = [f"    {p}, {space.estimate_s(p) * 1e6:.1f} us" for p in first]
    return "\n".join([*lines, "  first by estimate:", *estimates])


def _values(parameter: Parameter, pinned: Mapping[str, int]) -> str:
    found = pinned.get(parameter.name)
    return " ".join(map(str, parameter.values)) if found is None else f"{found} (pinned)"
