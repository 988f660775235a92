"""The user's line that a line of an emitted program comes from: programs name it in the comment above."""

from __future__ import annotations

import linecache
import re
from functools import cache

_PLACE = re.compile(r"\s*# (\S+:\d+)$")


@cache
def user_line(file: str, line: int) -> str | None:
    """``model.py:12`` for a line, counted from 1, of a program's file; None if nothing above it names one."""
    for text in reversed(linecache.getlines(file)[:line]):
        if found := _PLACE.match(text.rstrip()):
            return found[1]
        if text.startswith("def "):
            return None
    return None
