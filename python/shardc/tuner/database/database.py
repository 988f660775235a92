"""``Database``: trials by task, in an SQLite file that several processes may use at once."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.diagnostics.tuner import TuningDatabaseNewer, TuningDatabaseNotWritable, TuningDatabaseWarning
from shardc.runtime.report.messages import warn
from shardc.tuner.database.place import database_path
from shardc.tuner.database.rows import TRIAL_FIELDS, check_rows, checked, read_point, read_sizes
from shardc.tuner.database.schema import MIGRATIONS, check_schema, distrust, migrate
from shardc.tuner.signature import distance, signature
from shardc.tuner.task_tuning import generator

WAIT_S = 30.0
"""Time that a process waits for another process's write."""
NEAR = 0.6
"""Maximum log2 distance of sizes that share a configuration. Beyond it, sharing loses as often as it gains
(decision 53).
"""
WORTH = 0.97
"""Maximum ratio of a configuration that is used for other sizes."""
COLUMNS = "sketch, point, outcome, ratio, seconds, spread, said, figures"


@dataclass(frozen=True)
class Found:
    """Best known point for a task.

    ``ratio``: its time relative to the default's. ``trials``: number of trials made. ``near``: label of the
    task of other sizes that it was measured for, or None. ``shipped``: True if it came with shardc.
    """

    point: Point
    ratio: float
    trials: int
    near: str | None = None
    shipped: bool = False

    @property
    def origin(self) -> str:
        """Text on where the point was measured, and with how many trials."""
        where = "shipped with shardc" if self.shipped else "measured here"
        of = f" of {self.near}" if self.near else ""
        return f"{where}, {self.trials} trial{'s' * (self.trials != 1)}{of}"


def open_database(path: Path | None = None) -> Database:
    """Open the database at ``path``, by default :func:`database_path`; create it if needed.

    A damaged file is renamed, with a TuningDatabaseWarning. Raises TuningDatabaseNewer,
    TuningDatabaseNotWritable.
    """
    path = path or database_path()
    try:
        found = Database(path)
        found.check()
        return found
    except (OSError, sqlite3.OperationalError) as error:  # before DatabaseError, its base class
        raise TuningDatabaseNotWritable(reason=error, where=str(path)) from None
    except sqlite3.DatabaseError as error:
        set_aside(path, error)
        return open_database(path)


def set_aside(path: Path, error: Exception) -> None:
    """Rename a damaged database, with a warning."""
    aside = path.with_name(f"{path.name}.damaged-{os.getpid()}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(aside.with_name(aside.name + suffix))
    message = (
        f"the tuning database {path} is damaged ({error}); it was renamed to {aside}, a new one was created"
    )
    warn("TuningDatabaseDamaged", message, TuningDatabaseWarning, 3)


class Database:
    """Open database, a context manager.

    The writes of a call are atomic and durable. One thread at a time may write. Trials of older code
    generators stay in the file, but are neither chosen nor returned. Outside of :meth:`writing`, use
    ``connection`` only for reading.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            distrust(self.connection)
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute("PRAGMA foreign_keys = ON")
            found = migrate(self.connection)
            check_schema(self.connection)
        except sqlite3.DatabaseError:
            self.connection.close()
            raise
        if found > len(MIGRATIONS):
            self.connection.close()
            raise TuningDatabaseNewer(found=found, known=len(MIGRATIONS), where=str(path))

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def check(self) -> None:
        """Read the whole file. Raises sqlite3.DatabaseError if it is damaged."""
        (said,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            raise sqlite3.DatabaseError(said)
        check_rows(self.connection)

    def record(self, task: Task, trials: Sequence[Trial]) -> None:
        """Add trials of a task. A later trial of a point replaces earlier ones."""
        of, now = generator(task.target), time.time()
        rows = [(of, *_written(trial), now) for trial in trials]
        with self.writing():
            before = self._best(task)
            self.add(self.task_number(task), rows)
            if self._best(task) != before:
                self.choices_changed()

    def trials(self, task: Task) -> list[Trial]:
        """Return the trials of a task, in the order in which they were recorded."""
        rows = self.connection.execute(
            f"SELECT {COLUMNS} FROM trials WHERE task = ({_TASK}) AND generator = ? ORDER BY id",
            (*_key(task), generator(task.target)),
        )
        return [_read(row) for row in rows]

    def tasks(self, target: str) -> list[Task]:
        """Return the tasks of a target, in the order in which they were added."""
        rows = self.connection.execute(
            "SELECT text, target, threads, label FROM tasks WHERE target = ? ORDER BY id", (target,)
        )
        return [Task(*row) for row in rows]

    def best(self, task: Task) -> Found | None:
        """Return the best point measured for a task, or else for the same kernel with the nearest sizes.

        NEAR and WORTH limit the latter. It need not be legal at these sizes.
        """
        return self._best(task) or self._near(task)

    def choices_changed(self) -> None:
        """Record that :meth:`best` may have changed (``place.tuning_choices``).

        Call within :meth:`writing`.
        """
        self.connection.execute("INSERT OR REPLACE INTO facts VALUES ('choices', ?)", (uuid.uuid4().hex,))

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Context of a transaction: all its writes happen, or none. Raises TuningDatabaseNotWritable."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise TuningDatabaseNotWritable(reason=error, where=str(self.path)) from None
        try:
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException as error:
            if self.connection.in_transaction:  # a full disk has ended it
                self.connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise TuningDatabaseNotWritable(reason=error, where=str(self.path)) from None
            raise

    def task_number(self, task: Task) -> int:
        """Return the number of a task's row, and add the row if needed. Call within :meth:`writing`."""
        found = self.connection.execute(_TASK, _key(task)).fetchone()
        if found:
            return found[0]
        form = signature(task)
        sizes = form.dtype, form.skeleton, json.dumps(form.sizes), form.shape_class
        columns = "structure, target, threads, text, label, dtype, skeleton, sizes, shape_class"
        insert = f"INSERT INTO tasks ({columns}) VALUES ({', '.join('?' * 9)})"
        made = self.connection.execute(insert, (*_key(task), task.text, task.label, *sizes))
        assert made.lastrowid is not None
        return made.lastrowid

    def add(self, number: int, rows: Sequence[tuple[object, ...]]) -> None:
        """Add rows of trials, with the generator first and the time last. Call within :meth:`writing`."""
        insert = f"INSERT INTO trials (task, generator, {COLUMNS}, made_at) VALUES ({', '.join('?' * 11)})"
        self.connection.executemany(insert, [(number, *row) for row in rows])

    def _best(self, task: Task) -> Found | None:
        row = self.connection.execute(_TASK, _key(task)).fetchone()
        return self._best_of(row[0], generator(task.target)) if row else None

    def _best_of(self, number: int, of: str, near: str | None = None) -> Found | None:
        best = (
            "SELECT sketch, point, ratio FROM latest WHERE task = ? AND generator = ? "
            "AND outcome = 'measured' ORDER BY ratio, id LIMIT 1"
        )
        row = self.connection.execute(best, (number, of)).fetchone()
        if not row:
            return None
        count = "SELECT count(*) FROM latest WHERE task = ? AND generator = ?"
        (trials,) = self.connection.execute(count, (number, of)).fetchone()
        return Found(read_point(row[0], row[1]), row[2], trials, near)

    def _near(self, task: Task) -> Found | None:
        others = "SELECT 1 FROM tasks WHERE target = ? AND threads = ? LIMIT 1"
        if not self.connection.execute(others, (task.target, task.threads)).fetchone():
            return None
        form = signature(task)
        rows = self.connection.execute(
            "SELECT sizes, id, label FROM tasks WHERE skeleton = ? AND target = ? AND threads = ?",
            (form.skeleton, task.target, task.threads),
        )
        apart = [(distance(read_sizes(sizes), form.sizes), n, label) for sizes, n, label in rows]
        for _, number, label in sorted(row for row in apart if row[0] <= NEAR):
            found = self._best_of(number, generator(task.target), label)
            if found is not None and found.ratio < WORTH:
                return found
        return None


_TASK = "SELECT id FROM tasks WHERE structure = ? AND target = ? AND threads = ?"


def _key(task: Task) -> tuple[str, str, int]:
    return task.structure, task.target, task.threads


def _written(trial: Trial) -> tuple[object, ...]:
    """Return the columns of a trial."""
    sketch, point = trial.point.sketch, json.dumps(trial.point.values)
    times, figures = (trial.ratio, trial.seconds, trial.spread), json.dumps(dict(trial.figures))
    return (sketch, point, str(trial.outcome), *times, trial.said, figures)


def _read(row: tuple[Any, ...]) -> Trial:
    """Read a trial. Raises sqlite3.DatabaseError for a row with columns of a wrong kind."""
    sketch, point, outcome, ratio, seconds, spread, said, figures = checked(TRIAL_FIELDS, row)
    point = read_point(sketch, point)
    return Trial(point, Outcome(outcome), ratio, seconds, spread, said, json.loads(figures))
