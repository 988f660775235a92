"""Reading ``not_offered.md``: layouts that are valid and not offered, each with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from completeness import Layout

FILE = Path(__file__).with_name("not_offered.md")
_ROW = re.compile(r"\| `(?P<op>[^`]+)` \| `(?P<layout>[^`]+)` \| (?P<why>.+) \|")


@dataclass(frozen=True)
class Entry:
    """Patterns (``*`` for anything) of operators and layouts, and why those are not offered."""

    op: str
    layout: str
    why: str

    def explains(self, target: str, layout: Layout) -> bool:
        return fnmatchcase(target, self.op) and fnmatchcase(str(layout), self.layout)


def read_entries(text: str) -> list[Entry]:
    return [
        Entry(**match.groupdict()) for line in text.splitlines() if (match := _ROW.fullmatch(line.strip()))
    ]


ENTRIES = read_entries(FILE.read_text())


def unexplained(target: str, layouts: list[Layout]) -> list[Layout]:
    return [found for found in layouts if not any(e.explains(target, found) for e in ENTRIES)]
