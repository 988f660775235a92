"""Measured seconds of calls, and predictions of programs from them, stored in the tuning database."""

from __future__ import annotations

import time
from collections.abc import Mapping

from shardc.cost.profile import Conditions, PredictedStep, Profile
from shardc.runtime.schema import checks as s
from shardc.tuner.database.database import open_database
from shardc.tuner.database.rows import checked

FIELDS: dict[str, s.Check] = {"call": s.text(), "seconds": s.number}
PROGRAM_FIELDS: dict[str, s.Check] = {"seconds": s.number, "peak_bytes": s.integer()}
_OF = "machine = ? AND processes = ? AND threads = ?"


def read_profile(conditions: Conditions) -> Profile:
    """Return the measurements under these conditions. Raises what opening the database raises."""
    with open_database() as database:
        rows = database.connection.execute(
            f"SELECT call, seconds FROM profiles WHERE {_OF}", _key(conditions)
        )
        return Profile(conditions, dict(checked(FIELDS, row) for row in rows))


def record_profile(conditions: Conditions, seconds: Mapping[str, float]) -> None:
    """Store measurements. A later figure of a call replaces an earlier one."""
    rows = [(*_key(conditions), call, figure, time.time()) for call, figure in seconds.items()]
    with open_database() as database, database.writing() as connection:
        connection.executemany("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?, ?, ?)", rows)


def read_program(conditions: Conditions, program: str) -> PredictedStep | None:
    """Return the prediction for a program, by the hash of its text.

    Raises what opening the database raises.
    """
    with open_database() as database:
        row = database.connection.execute(
            f"SELECT seconds, peak_bytes FROM programs WHERE {_OF} AND program = ?",
            (*_key(conditions), program),
        ).fetchone()
        return None if row is None else PredictedStep(*checked(PROGRAM_FIELDS, row))


def record_program(conditions: Conditions, program: str, step: PredictedStep) -> None:
    """Store the prediction for a program."""
    row = (*_key(conditions), program, step.seconds, step.peak_bytes, time.time())
    with open_database() as database, database.writing() as connection:
        connection.execute("INSERT OR REPLACE INTO programs VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _key(conditions: Conditions) -> tuple[str, int, int]:
    return conditions.machine, conditions.processes, conditions.threads
