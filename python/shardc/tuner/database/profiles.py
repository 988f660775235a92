"""Measured seconds of a program's calls, beside the tuner's trials."""

from __future__ import annotations

import time
from collections.abc import Mapping

from shardc.cost.profile import Conditions, Profile
from shardc.runtime.schema import checks as s
from shardc.tuner.database.database import open_database
from shardc.tuner.database.rows import checked

FIELDS: dict[str, s.Check] = {"call": s.text(), "seconds": s.number}
_OF = "machine = ? AND processes = ? AND threads = ?"


def read_profile(conditions: Conditions) -> Profile:
    """What was measured under these conditions. Raises what opening the database does."""
    with open_database() as database:
        rows = database.connection.execute(
            f"SELECT call, seconds FROM profiles WHERE {_OF}", _key(conditions)
        )
        return Profile(conditions, dict(checked(FIELDS, row) for row in rows))


def record_profile(conditions: Conditions, seconds: Mapping[str, float]) -> None:
    """Keep what was measured; a later figure of a call stands for the earlier one."""
    rows = [(*_key(conditions), call, figure, time.time()) for call, figure in seconds.items()]
    with open_database() as database, database.writing() as connection:
        connection.executemany("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?, ?, ?)", rows)


def _key(conditions: Conditions) -> tuple[str, int, int]:
    return conditions.machine, conditions.processes, conditions.threads
