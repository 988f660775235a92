"""Reads the file of a saved plan, and checks its schema and version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardc.diagnostics.passes.plan import BadPlanFile
from shardc.runtime.schema import checks as s

SCHEMA = "shardc-plan"
VERSION = 1
_ENTRY = s.record(
    {
        "role": s.text(),
        "name": s.text(),
        "dims": s.nullable(s.items(s.items(s.text()))),
        "closed": s.truth,
        "refine": s.items(s.row(s.integer(), s.text(), s.integer(-1))),
        "why": s.text("(?s).*"),
    }
)
_AXIS = (s.text(), s.integer(1), s.choice("space", "time"))
_CUTS = s.record(
    {
        "program": s.text("[0-9a-f]{64}", "a SHA-256"),
        "kinds": s.items(s.items(s.nullable(s.either(s.text(), s.integer())))),
        "calls": s.items(s.integer()),
        "arguments": s.items(s.items(s.integer(-1))),
    },
    {"kept": s.items(s.row(s.integer(), s.integer(), s.items(s.integer(-1))))},
)
_CHECK = s.record(
    {
        "schema": s.exactly(SCHEMA),
        "version": s.exactly(VERSION),
        "model": s.text("[0-9a-f]{64}", "a SHA-256"),
        "mesh": s.items(s.either(s.row(*_AXIS), s.row(*_AXIS, s.items(s.integer(1), 1))), 1),
        "text": s.text("(?s).*"),
        "entries": s.items(_ENTRY),
    },
    {
        "pipeline": s.text("(?s).*"),
        "cluster": s.text("(?s).+"),
        "cuts": _CUTS,
        "attention": s.items(s.row(s.text(), s.choice("ulysses", "ring"))),
    },
)


def named_file(given: object, suffix: str) -> Path | None:
    """Return the file that a user names by a path, or by a text with this suffix; None for anything else."""
    is_file = isinstance(given, Path) or (isinstance(given, str) and given.endswith(suffix))
    return Path(str(given)) if is_file else None


def load_plan_file(path: Path) -> dict[str, object]:
    """Return the content of a saved plan. Raises BadPlanFile."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadPlanFile(path=path, problem="there is no such file") from None
    except json.JSONDecodeError as error:
        problem = f"it is not whole JSON (line {error.lineno}, column {error.colno}: {error.msg})"
        raise BadPlanFile(path=path, problem=problem) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadPlanFile(path=path, problem=f"it can't be read ({error})") from None
    check_plan_version(data, path)
    if (problem := plan_problem(data)) is not None:
        raise BadPlanFile(path=path, problem=problem)
    return data


def plan_problem(data: object) -> str | None:
    """Describe the first problem of a plan's JSON; None if there is none."""
    found = s.first_problem(_CHECK, data)
    return found or next(_misfits(data), None)  # pyright: ignore[reportArgumentType]


def _misfits(data: dict[str, Any]) -> Iterator[str]:
    """Yield problems of names in a plan whose fields have the right types."""
    axes = [row[0] for row in data["mesh"]]
    if len(set(axes)) < len(axes):
        yield "two axes of mesh have one name"
    keys = [(entry["role"], entry["name"]) for entry in data["entries"]]
    if len(set(keys)) < len(keys):
        yield "two entries have one role and name"
    for number, entry in enumerate(data["entries"]):
        used = [name for dim in entry["dims"] or () for name in dim] + [
            name for _, name, _ in entry["refine"]
        ]
        if unknown := sorted(set(used) - set(axes)):
            yield f"entries[{number}] names the axis {unknown[0]!r}, which mesh does not have"
    if unknown := [axis for axis, _ in data.get("attention", ()) if axis not in axes]:
        yield f"attention names the axis {unknown[0]!r}, which mesh does not have"
    cuts = data.get("cuts", {"kinds": [], "calls": []})
    if any(number >= len(cuts["kinds"]) for number in cuts["calls"]):
        yield "a call in cuts has an unknown kind"
    if any(call >= len(cuts["calls"]) for call, *_ in cuts.get("kept", ())):
        yield "cuts keeps the result of a call that is not there"
    if data.get("pipeline") and data["pipeline"] not in axes:
        yield f"pipeline is {data['pipeline']!r}, which is not an axis of mesh"


def check_plan_version(data: object, path: Path) -> None:
    """Raise BadPlanFile for another schema or version."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BadPlanFile(path=path, problem=f'it has no "schema": "{SCHEMA}"')
    if data.get("version") != VERSION or type(data["version"]) is not int:
        problem = f"it has version {data.get('version')}; this shardc reads version {VERSION}"
        raise BadPlanFile(path=path, problem=problem)
