"""Checks of JSON data: kinds of values, their ranges, and unknown keys.

A check takes the path of a value (``mesh[0].size``) and the value, and yields text on each problem.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Check = Callable[[str, Any], Iterator[str]]
INT64 = (1 << 63) - 1
"""Upper limit of sizes and counts."""


def first_problem(check: Check, value: object, where: str = "") -> str | None:
    """Return text on the first problem of a value; None if it is valid."""
    return next(check(where, value), None)


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Return a check for an object with these keys, and no others."""
    known = {**required, **(optional or {})}

    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where or 'it'} is {_shown(value)}, not an object"
            return
        yield from (f"{where or 'it'} has no {key!r}" for key in required if key not in value)
        yield from (f"{where or 'it'} has {key!r}, which is unknown" for key in value if key not in known)
        for key, part in known.items():
            if key in value:
                yield from part(f"{where}.{key}" if where else key, value[key])

    return check


def items(part: Check, least: int = 0, most: int | None = None) -> Check:
    """Return a check for a list of ``least`` to ``most`` items that all pass ``part``."""

    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{where} is {_shown(value)}, not a list"
        elif len(value) < least or (most is not None and len(value) > most):
            yield f"{where} has {len(value)} entries"
        else:
            for number, entry in enumerate(value):
                yield from part(f"{where}[{number}]", entry)

    return check


def row(*parts: Check) -> Check:
    """Return a check for a list with one item for each of ``parts``."""

    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, list) or len(value) != len(parts):
            yield f"{where} is {_shown(value)}, not a list of {len(parts)}"
            return
        for number, (part, entry) in enumerate(zip(parts, value, strict=True)):
            yield from part(f"{where}[{number}]", entry)

    return check


def either(first: Check, second: Check) -> Check:
    """Return a check for values that pass one of two checks. It reports problems of the first."""

    def check(where: str, value: Any) -> Iterator[str]:
        problem = next(first(where, value), None)
        if problem is not None and next(second(where, value), None) is not None:
            yield problem

    return check


def mapping(part: Check, key: Check | None = None) -> Check:
    """Return a check for an object with any keys, whose values pass ``part``."""

    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where} is {_shown(value)}, not an object"
            return
        for name, entry in value.items():
            yield from (key or text())(f"a key of {where}", name)
            yield from part(f"{where}[{name!r}]", entry)

    return check


def integer(low: int = 0, high: int = INT64) -> Check:
    def check(where: str, value: Any) -> Iterator[str]:
        if type(value) is not int:
            yield f"{where} is {_shown(value)}, not an integer"
        elif not low <= value <= high:
            yield f"{where} is {value}, not within {low} and {high}"

    return check


def number(where: str, value: Any) -> Iterator[str]:
    """Check for a number other than NaN."""
    if type(value) not in (int, float) or math.isnan(value):
        yield f"{where} is {_shown(value)}, not a number"


def positive(where: str, value: Any) -> Iterator[str]:
    """Check for a finite number above zero, such as a time."""
    yield from number(where, value)
    if type(value) in (int, float) and not 0 < value < math.inf:
        yield f"{where} is {value}, not above 0"


def truth(where: str, value: Any) -> Iterator[str]:
    if type(value) is not bool:
        yield f"{where} is {_shown(value)}, neither true nor false"


def text(pattern: str = r"(?s).+", kind: str = "a text") -> Check:
    """Return a check for text that matches a pattern; by default for text that is not empty."""
    compiled = re.compile(pattern)

    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            yield f"{where} is {_shown(value)}, not {kind}"

    return check


def choice(*values: str) -> Check:
    def check(where: str, value: Any) -> Iterator[str]:
        if value not in values or not isinstance(value, str):
            yield f"{where} is {_shown(value)}, not one of {', '.join(values)}"

    return check


def exactly(expected: object) -> Check:
    def check(where: str, value: Any) -> Iterator[str]:
        if type(value) is not type(expected) or value != expected:
            yield f"{where} is {_shown(value)}, not {expected!r}"

    return check


def nullable(part: Check) -> Check:
    def check(where: str, value: Any) -> Iterator[str]:
        if value is not None:
            yield from part(where, value)

    return check


def anything(where: str, value: Any) -> Iterator[str]:
    yield from ()


def _shown(value: Any) -> str:
    """Format a value for an error, shortened if it is long."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
