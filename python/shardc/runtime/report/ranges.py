"""Ranges of ``torch.profiler`` in a program, named by the phase and the user's line.

If ``SHARDC_PROFILE_RANGES=1`` is set when a program is loaded, ranges are added to its text.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import torch

NAME = "shardc_range"
"""Name of the function that a program with ranges calls."""
_PLACE = re.compile(r"(\s*)# (-- )?(\S.*)$")
_RETURN = re.compile(r"(\s+)return\b")


class Ranges:
    """Open range. There is one at a time; opening the next one closes it."""

    def __init__(self) -> None:
        self._open: AbstractContextManager[object] | None = None

    def __call__(self, name: str = "") -> None:
        """Close the range, and open another one if ``name`` is not empty."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = torch.profiler.record_function(name) if name else None
        if self._open is not None:
            self._open.__enter__()


def with_ranges(text: str) -> str:
    """Return a program that opens a range at each comment with a phase or line, as ``forward model.py:12``.

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
