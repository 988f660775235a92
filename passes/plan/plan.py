"""Plans: shardings of a few arguments of the step, from which propagation derives all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str]
"""(role, name) of an argument. A gradient has the role ``grad`` and its parameter's name. :data:`ATTENTION`
stands for the results of all attention.
"""

ATTENTION: Key = ("activation", "attention")

DimNames = tuple[tuple[str, ...], ...]
"""For each dim, the names of the mesh axes that split it, the most major first."""


@dataclass(frozen=True)
class Entry:
    """A plan's constraints on one argument.

    ``dims`` are the axes in round 0; None leaves them to propagation. ``closed`` forbids propagation to add
    axes. ``refine`` lists (round, axis, dim) splits of later rounds; dim -1 is the first that divides.
    ``why`` is the preset or pattern that the constraints come from.
    """

    dims: DimNames | None = None
    closed: bool = True
    refine: tuple[tuple[int, str, int], ...] = ()
    why: str = ""


@dataclass
class Plan:
    """Entries by argument, and the text of the plan.

    ``pipeline`` is the axis of stages, or empty. ``attention`` maps an axis that splits sequences to the
    method of attention; for other axes attention gathers keys and values. ``cuts`` is the sharding of each
    call in a plan that was searched and saved (``passes/search/saved.py``), as plain data.
    """

    text: str
    entries: dict[Key, Entry] = field(default_factory=dict)
    pipeline: str = ""
    attention: dict[str, str] = field(default_factory=dict)
    cuts: Mapping[str, Any] | None = None

    def say(self, key: Key, dims: DimNames, *, closed: bool, why: str) -> None:
        """Set the axes of an argument's dims. Later calls for the same argument append axes, dim by dim."""
        old = self.entries.get(key, Entry())
        if old.dims is not None:
            dims = tuple((*a, *b) for a, b in zip(old.dims, dims, strict=True))
            closed = closed or old.closed
        self.entries[key] = Entry(dims, closed, old.refine, _joined(old.why, why))

    def refine(self, key: Key, priority: int, axis: str, dim: int, *, why: str) -> None:
        """Split an argument further in a later round."""
        old = self.entries.get(key, Entry(closed=False))
        refine = (*old.refine, (priority, axis, dim))
        self.entries[key] = Entry(old.dims, old.closed, refine, _joined(old.why, why))


def _joined(old: str, why: str) -> str:
    """Return both lists of reasons joined, without duplicates."""
    return ", ".join(dict.fromkeys(reason for text in (old, why) for reason in text.split(", ") if reason))


@dataclass(frozen=True)
class Argument:
    """An argument of the step, in the form that presets read."""

    role: str
    name: str
    shape: tuple[int, ...]
    counts: bool = False
    """True if its elements are integers, such as tokens and labels, or booleans."""

    @property
    def key(self) -> Key:
        return self.role, self.name
