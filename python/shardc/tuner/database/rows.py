"""Checks of rows of a database or an export, so that wrong data is never used, whoever wrote it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome
from shardc.runtime.schema import checks as s

_POINT = s.items(s.row(s.text(r"\w+", "a name"), s.integer(1)))
_FIGURES = s.mapping(s.integer(-s.INT64))
_ANY_TEXT = s.text("(?s).*")


def _json(part: s.Check) -> s.Check:
    """Return a check for JSON text whose value passes ``part``."""

    def check(where: str, value: Any) -> Iterator[str]:
        try:
            held = json.loads(value)
        except (ValueError, TypeError, RecursionError) as error:
            yield f"{where} is not JSON ({error})"
            return
        yield from part(where, held)

    return check


TASK_FIELDS: dict[str, s.Check] = {
    "text": s.text(),
    "target": s.text(),
    "threads": s.integer(1),
    "label": _ANY_TEXT,
}
TRIAL_FIELDS: dict[str, s.Check] = {
    "sketch": s.text(),
    "point": _json(_POINT),
    "outcome": s.choice(*Outcome),
    "ratio": s.nullable(s.positive),
    "seconds": s.nullable(s.positive),
    "spread": s.nullable(s.number),
    "said": _ANY_TEXT,
    "figures": _json(_FIGURES),
}
EXPORTED = s.record(
    {
        "task": s.record(TASK_FIELDS),
        "trials": s.items(s.record({"generator": _ANY_TEXT, **TRIAL_FIELDS, "made_at": s.number})),
    }
)
"""Check of a line of an export."""
_SIZES = _json(s.items(s.integer(-s.INT64)))


def checked(fields: dict[str, s.Check], row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``row`` if its columns pass the checks of ``fields``. Raises sqlite3.DatabaseError otherwise."""
    problem = s.first_problem(s.record(fields), dict(zip(fields, row, strict=True)), "a row")
    if problem is not None:
        raise sqlite3.DatabaseError(problem)
    return row


def read_point(sketch: Any, values: Any) -> Point:
    """Read a point from columns of a row. Raises sqlite3.DatabaseError."""
    checked({name: TRIAL_FIELDS[name] for name in ("sketch", "point")}, (sketch, values))
    return Point(sketch, tuple((name, value) for name, value in json.loads(values)))


def read_sizes(text: Any) -> list[int]:
    """Read the sizes of a kernel. Raises sqlite3.DatabaseError."""
    checked({"sizes": _SIZES}, (text,))
    return json.loads(text)


def check_rows(connection: sqlite3.Connection) -> None:
    """Check every row. Raises sqlite3.DatabaseError for the first with a column of a wrong kind."""
    for fields, table in ((TASK_FIELDS, "tasks"), ({"sizes": _SIZES}, "tasks"), (TRIAL_FIELDS, "trials")):
        for row in connection.execute(f"SELECT {', '.join(fields)} FROM {table}"):
            checked(fields, row)
