"""User's source line of an emitted program's line, from the comment above it."""

import itertools
import linecache
import re
import sys
from collections.abc import Sequence
from functools import cache

_PLACE = re.compile(r"\s*# (\S.*:\d+)$")
_numbers = itertools.count()


def listed(text: str, name: str) -> str:
    """Return a new file name for a program's ``text``, by which tracebacks and ``user_line`` find it."""
    file = f"<{name} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return file


@cache
def user_line(file: str, line: int) -> str | None:
    """Return ``model.py:12`` for a line, counted from 1, of a program's file; None without such a comment."""
    return place_above(linecache.getlines(file), line)


def calling_line() -> str | None:
    """Return :func:`user_line` of the calling program; None outside of programs."""
    frame = sys._getframe(1)
    while frame is not None and "GROUPS" not in frame.f_globals:
        frame = frame.f_back
    return None if frame is None else user_line(frame.f_code.co_filename, frame.f_lineno)


def place_above(lines: Sequence[str], line: int) -> str | None:
    """Return :func:`user_line` for the ``lines`` of a program."""
    for text in reversed(lines[:line]):
        if found := _PLACE.match(text.rstrip()):
            return found[1]
        if text.startswith("def "):
            return None
    return None
