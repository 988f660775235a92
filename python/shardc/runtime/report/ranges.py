"""Ranges of ``torch.profiler`` in a program: each line runs under its phase and the user's line.

``SHARDC_PROFILE_RANGES=1`` turns them on as programs are loaded; without it a program's text runs as it is.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import torch

NAME = "shardc_range"
"""What a program with ranges calls."""
_PLACE = re.compile(r"(\s*)# (-- )?(\S.*)$")
_RETURN = re.compile(r"(\s+)return\b")


class Ranges:
    """The range that is open: one at a time, which the next one closes."""

    def __init__(self) -> None:
        self._open: AbstractContextManager[object] | None = None

    def __call__(self, name: str = "") -> None:
        """Close the range, and open one of that name; without a name none."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = torch.profiler.record_function(name) if name else None
        if self._open is not None:
            self._open.__enter__()


def with_ranges(text: str) -> str:
    """A program that opens a range at each comment that names a phase or a line, ``forward model.py:12``.

    Lines keep their numbers.
    """
    phase, place, lines = "", "", []
    for line in text.splitlines():
        found, returned = _PLACE.match(line), _RETURN.match(line)
        if line.startswith("def "):
            phase, place = "", ""
        if found is not None and found[1]:
            phase, place = (found[3], place) if found[2] else (phase, found[3])
            line = f"{found[1]}{NAME}({f'{phase} {place}'.strip()!r})"
        elif returned is not None:
            line = f"{returned[1]}{NAME}(); {line.strip()}"
        lines.append(line)
    return "\n".join(lines) + "\n"
