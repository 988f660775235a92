"""A user's constraints on spaces, as JSON: points to pin, to forbid and to add.

``{"pin": {"tile_m": 6}, "forbid": [{"sketch": "matmul", "tile_n": 32}], "add": [{"sketch": "matmul", ...}]}``

``pin`` applies to each kernel with such a parameter. An entry of ``forbid`` excludes every point with its
values. An entry of ``add`` names all parameters of its sketch, with any values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Sketch, Space
from shardc.diagnostics.tuner import MalformedConstraints, UnknownConstraint

KINDS = ("pin", "forbid", "add")
Entry = Mapping[str, int | str]


@dataclass(frozen=True)
class Constraints:
    """Constraints of a user: pinned values of parameters, points to forbid and points to add.

    ``where``: the file or option that they come from.
    """

    pin: Mapping[str, int] = field(default_factory=dict)
    forbid: Sequence[Entry] = ()
    add: Sequence[Entry] = ()
    where: str | None = None


def read_constraints(text: str, where: str | None = None) -> Constraints:
    """Parse JSON from the file or option ``where``. Raises MalformedConstraints, UnknownConstraint."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise MalformedConstraints(where=where, problem=f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise MalformedConstraints(where=where, problem="it is not an object")
    for kind in found:
        if kind not in KINDS:
            raise UnknownConstraint(where=where, kind="entry", name=kind, known=_near(kind, KINDS))
    pin, forbid, add = found.get("pin", {}), found.get("forbid", []), found.get("add", [])
    _check_entry("pin", pin, where)
    for kind, entries in (("forbid", forbid), ("add", add)):
        if not isinstance(entries, list):
            problem = f"{kind} must be a list of points, not {json.dumps(entries)}"
            raise MalformedConstraints(where=where, problem=problem)
        for entry in entries:
            _check_entry(kind, entry, where)
            if not isinstance(entry.get("sketch", "" if kind == "forbid" else None), str):
                raise MalformedConstraints(where=where, problem=f"{json.dumps(entry)} must name its sketch")
    return Constraints(pin, tuple(forbid), tuple(add), where)


def _check_entry(kind: str, entry: object, where: str | None) -> None:
    if not isinstance(entry, dict):
        problem = f"{kind} has {json.dumps(entry)}, not names with their values"
        raise MalformedConstraints(where=where, problem=problem)
    for name, value in entry.items():
        if (name != "sketch" or kind == "pin") and (type(value) is not int or value < 1):
            problem = f"{name} must be an integer of at least 1, not {json.dumps(value)}"
            raise MalformedConstraints(where=where, problem=problem)


def check_names(constraints: Constraints, spaces: Sequence[Space]) -> None:
    """Raise UnknownConstraint for a sketch or parameter that is in none of the ``spaces`` of all tasks."""
    sketches = [sketch for space in spaces for sketch in space.sketches]
    named = {s.name for s in sketches}
    for entry in (constraints.pin, *constraints.forbid, *constraints.add):
        sketch = entry.get("sketch")
        if sketch is not None and sketch not in named:
            near = _near(str(sketch), named)
            raise UnknownConstraint(where=constraints.where, kind="sketch", name=sketch, known=near)
        known = {p.name for s in sketches if sketch in (None, s.name) for p in s.parameters}
        for name in entry:
            if name != "sketch" and name not in known:
                near = _near(name, known)
                raise UnknownConstraint(where=constraints.where, kind="parameter", name=name, known=near)


def constrain(space: Space, constraints: Constraints) -> Space:
    """Return ``space`` with the user's constraints applied. Sketches and parameters of other kernels are
    ignored.

    Raises MalformedConstraints for a point to add that lacks a parameter of its sketch, or that is illegal.
    """
    names = {p.name for s in space.sketches for p in s.parameters}
    by_name = {s.name: s for s in space.sketches}
    pins = {name: value for name, value in constraints.pin.items() if name in names}
    added = [(entry, by_name.get(str(entry["sketch"]))) for entry in constraints.add]
    mine = [_point(entry, sketch, constraints) for entry, sketch in added if sketch is not None]
    forbidden = [e for e in constraints.forbid if e.get("sketch", next(iter(by_name), None)) in by_name]
    sketches = tuple(_without(s, forbidden) for s in space.sketches)
    made = replace(space, sketches=sketches, pinned={**space.pinned, **pins}, added=(*space.added, *mine))
    for point in mine:
        if (said := made.refusal(point)) is not None:
            raise MalformedConstraints(where=constraints.where, problem=f"{point} is illegal: {said}")
    return made


def _point(entry: Entry, sketch: Sketch, constraints: Constraints) -> Point:
    names = [p.name for p in sketch.parameters]
    missing = [name for name in names if name not in entry]
    extra = [name for name in entry if name not in (*names, "sketch")]
    if missing or extra:
        has, lacks, more = (", ".join(some) for some in (names, missing, extra))
        problem = f"{sketch.name} has {has or 'no parameters'}: missing {lacks or 'none'}"
        raise MalformedConstraints(where=constraints.where, problem=f"{problem}, unknown {more or 'none'}")
    return Point.of(sketch.name, {name: int(entry[name]) for name in names})


def _without(sketch: Sketch, forbidden: Sequence[Entry]) -> Sketch:
    """Return ``sketch`` with a refusal of the forbidden points."""
    mine = [
        {n: v for n, v in e.items() if n != "sketch"}
        for e in forbidden
        if e.get("sketch", sketch.name) == sketch.name
    ]
    if not mine:
        return sketch

    def refusal(values: Mapping[str, int]) -> str | None:
        hit = next((e for e in mine if all(values.get(n) == v for n, v in e.items())), None)
        return sketch.refusal(values) if hit is None else f"forbidden by the user: {json.dumps(hit)}"

    return replace(sketch, refusal=refusal)


def _near(name: str, known: Iterable[str]) -> str:
    """Return the names most like ``name``, or all names if none is similar."""
    names = sorted(known)
    return ", ".join(get_close_matches(name, names, n=3, cutoff=0.5) or names)
