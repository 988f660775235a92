"""User's source line of an emitted program's line, from the comment above it."""

import itertools
import linecache
import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from types import CodeType, FrameType

_PLACE = re.compile(r"\s*# (\S.*:\d+)$")
_numbers = itertools.count()
_KEPT = 64
_tables: dict[int, tuple[CodeType, list[int], list[int]]] = {}
"""Offsets of instructions and their lines, by the identity of a function's code, of the latest functions."""


def listed(text: str, name: str) -> str:
    """Return a new file name for a program's ``text``, by which tracebacks and ``user_line`` find it."""
    file = f"<{name} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return file


@cache
def user_line(file: str, line: int) -> str | None:
    """Return ``model.py:12`` for a line, counted from 1, of a program's file; None without such a comment."""
    return place_above(linecache.getlines(file), line)


def line_of(frame: FrameType) -> int:
    """Return the running line of a function.

    It is ``frame.f_lineno``, which reads all lines up to the running one: too slow in long programs.
    """
    code = frame.f_code
    table = _tables.get(id(code))
    if table is None:
        if len(_tables) >= _KEPT:
            _tables.clear()
        rows = [(start, line) for start, _, line in code.co_lines() if line is not None]
        table = _tables[id(code)] = code, [start for start, _ in rows], [line for _, line in rows]
    _, starts, lines = table
    return lines[bisect_right(starts, frame.f_lasti) - 1]


def calling_line() -> str | None:
    """Return :func:`user_line` of the calling program; None outside of programs."""
    frame = sys._getframe(1)
    while frame is not None and "GROUPS" not in frame.f_globals:
        frame = frame.f_back
    return None if frame is None else user_line(frame.f_code.co_filename, line_of(frame))


def place_above(lines: Sequence[str], line: int) -> str | None:
    """Return :func:`user_line` for the ``lines`` of a program."""
    for text in reversed(lines[:line]):
        if found := _PLACE.match(text.rstrip()):
            return found[1]
        if text.startswith("def "):
            return None
    return None
