"""Use of tuned configurations: they are written on a program's kernels before these are compiled."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

from torch_mlir import ir

from shardc.backends.base import Target
from shardc.backends.tuning.kernel_text import CONFIG, configure, configured
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.diagnostics.base import ShardcError, remark
from shardc.diagnostics.tuner import TuningDatabaseWarning
from shardc.dialects.dist.build import string
from shardc.dialects.kern.kernel import TUNED
from shardc.dialects.location import source_line
from shardc.runtime.report.messages import warn
from shardc.tuner.database.database import Database, Found, set_aside
from shardc.tuner.database.place import database_path
from shardc.tuner.database.shipped import best_shipped, ships_for
from shardc.tuner.extract_tasks import kernels_of
from shardc.tuner.space.of_task import space_of_module

log = logging.getLogger(__name__)

_said: set[str] = set()


def use_tuned(module: ir.Module, target: Target) -> None:
    """Write the best known ``#kern.config`` on each kernel of level 4 that has none.

    It comes from the tuning database or the shipped trials. An illegal configuration is ignored with a
    remark, an unreadable database with a TuningDatabaseWarning.
    """
    tuning = target.tuning()
    if tuning is None or (not database_path().is_file() and not ships_for(tuning.task_target)):
        return
    database = _opened()
    try:
        for task, kernels in kernels_of(module, target).items():
            untouched = [kernel for kernel in kernels if CONFIG not in kernel.attributes]
            found = _found(task, database) if untouched else None
            if found is not None:
                _use(found, task, untouched)
    except sqlite3.DatabaseError as error:
        _say_unreadable(error)
    finally:
        if database is not None:
            database.close()


def _use(found: Found, task: Task, kernels: Sequence[ir.Operation]) -> None:
    if found.ratio > 1:
        _note(kernels, f"the default, faster than what was tried ({found.origin})")
        return
    if why := _refusal(task, found.point):
        message = f"{found.point} ({found.origin}) is not used for {task.label}: {why}"
        remark("TuningIgnored", message, source_line(kernels[0].location))
        log.debug(message)
        return
    said = f"{found.point}, {found.ratio:.2f}x of the default's time ({found.origin})"
    log.debug("%s: tuned: %s", task.label, said)
    for kernel in kernels:
        configure(kernel, found.point)
    _note(kernels, said)


def _note(kernels: Sequence[ir.Operation], said: str) -> None:
    for kernel in kernels:
        kernel.attributes[TUNED] = string(said, kernel.context)


def _found(task: Task, database: Database | None) -> Found | None:
    """Return the best known point. A point of this kernel comes before one of a kernel with similar sizes."""
    own = database.best(task) if database else None
    if own and not own.near:
        return own
    shipped = best_shipped(task)
    return min((f for f in (shipped, own) if f), key=lambda f: (bool(f.near), f.ratio), default=None)


def _refusal(task: Task, point: Point) -> str | None:
    """Return why a point is not legal for the kernel; None if it is legal.

    The space may have changed since the trial, or the kernel may have other sizes.
    """
    try:
        module = configured(task, None)
        with module.context, ir.Location.unknown():
            space = space_of_module(module, task.target, task.threads)
        sketch = space.sketch(point.sketch)
        names = {p.name for p in sketch.parameters} if sketch else point.config.keys()
        if names != point.config.keys():
            return f"{point.sketch} has the parameters {', '.join(sorted(names))}"
        return space.refusal(point)
    except ShardcError as error:
        return str(error)


def _opened() -> Database | None:
    """Open this machine's database; return None if there is none, or if it is unreadable."""
    try:
        return Database(database_path()) if database_path().is_file() else None
    except sqlite3.DatabaseError as error:
        _say_unreadable(error)
    except ShardcError as error:
        _warn(type(error).__name__, str(error))
    return None


def _say_unreadable(error: sqlite3.DatabaseError) -> None:
    """Warn about an unreadable database. A damaged file is renamed."""
    if isinstance(error, sqlite3.OperationalError):
        _warn(
            "TuningDatabaseUnreadable",
            f"the tuning database {database_path()} cannot be read ({error}): kernels are not tuned",
        )
    else:
        set_aside(database_path(), error)


def _warn(identity: str, message: str) -> None:
    if message not in _said:
        _said.add(message)
        warn(identity, message, TuningDatabaseWarning, 4)
