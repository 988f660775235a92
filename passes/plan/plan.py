"""Plans: which arguments of the step are cut how. Propagation does the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str]
"""(role, name) of an argument; gradients go by role ``grad`` and their parameter's name, what all attention
makes by :data:`ATTENTION`.
"""

ATTENTION: Key = ("activation", "attention")

DimNames = tuple[tuple[str, ...], ...]
"""For each dim the names of the mesh axes that cut it, the most major first."""


@dataclass(frozen=True)
class Entry:
    """A plan's constraints on one argument.

    ``dims`` are the axes from the start (None: propagation decides); ``closed`` keeps propagation from adding
    any. ``refine`` lists (round, axis, dim) cuts made in later rounds; dim -1 is the first that divides.
    ``why`` is the preset or pattern behind them.
    """

    dims: DimNames | None = None
    closed: bool = True
    refine: tuple[tuple[int, str, int], ...] = ()
    why: str = ""


@dataclass
class Plan:
    """Entries by argument, and the text they came from. ``pipeline`` is the axis of stages, or empty.

    ``attention``: for an axis that cuts sequences, how attention gets what other devices have; axes that are
    not there gather keys and values. ``cuts``: of a plan that was searched and saved, how each call is cut
    (``passes/search/saved.py``), as plain data.
    """

    text: str
    entries: dict[Key, Entry] = field(default_factory=dict)
    pipeline: str = ""
    attention: dict[str, str] = field(default_factory=dict)
    cuts: Mapping[str, Any] | None = None

    def say(self, key: Key, dims: DimNames, *, closed: bool, why: str) -> None:
        """Fix the dims of an argument; a later call for the same argument joins its cuts dim by dim."""
        old = self.entries.get(key, Entry())
        if old.dims is not None:
            dims = tuple((*a, *b) for a, b in zip(old.dims, dims, strict=True))
            closed = closed or old.closed
        self.entries[key] = Entry(dims, closed, old.refine, _joined(old.why, why))

    def refine(self, key: Key, priority: int, axis: str, dim: int, *, why: str) -> None:
        """Cut an argument further in a later round."""
        old = self.entries.get(key, Entry(closed=False))
        refine = (*old.refine, (priority, axis, dim))
        self.entries[key] = Entry(old.dims, old.closed, refine, _joined(old.why, why))


def _joined(old: str, why: str) -> str:
    """Both reasons, each once."""
    return ", ".join(dict.fromkeys(reason for text in (old, why) for reason in text.split(", ") if reason))


@dataclass(frozen=True)
class Argument:
    """One argument of the step as presets see it."""

    role: str
    name: str
    shape: tuple[int, ...]
    counts: bool = False
    """Whether its elements are integers, as tokens and labels are, or say yes and no."""

    @property
    def key(self) -> Key:
        return self.role, self.name
