"""Options for sending rows to experts on other devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shardc.diagnostics.passes.experts import BadCopies

Overflow = Literal["stop", "rerun"]
"""Action when more rows go to experts than there is room for."""
CopiedExperts = tuple[tuple[str, tuple[int, ...]], ...]
"""Patterns of names of parameters, or of their modules, each with the numbers of copied experts."""
_ALL = "*"


@dataclass(frozen=True)
class Experts:
    """Values of ``expert_capacity``, ``on_overflow`` and the other options of experts."""

    capacity: float | None = None
    on_overflow: Overflow = "stop"
    chunks: int = 1
    group: int | None = None
    copies: CopiedExperts = ()

    @property
    def is_guarded(self) -> bool:
        """Return whether a step that lacks room leaves its state unchanged."""
        return self.capacity is not None and self.on_overflow == "rerun"


ROOM_FOR_ALL = Experts()
"""The options' defaults."""


def read_copies(text: str) -> Mapping[str, object]:
    """Parse ``layers.0.*=3:17,layers.1.*=5``; ``3:17`` alone is for all layers. Raises BadCopies."""
    parts = [part.rpartition("=") for part in text.split(",")]
    found = {pattern.strip() or _ALL: _numbers(experts) for pattern, _, experts in parts}
    if len(found) < len(parts):
        raise BadCopies(given=text)
    return found


def _numbers(text: str) -> object:
    try:
        return [int(part) for part in text.split(":")]
    except ValueError:
        return text


def copies_of(given: object) -> object:
    """Normalize experts given by pattern, or as a list for all layers. Raises BadCopies."""
    by_pattern = given if isinstance(given, Mapping) else {_ALL: given}
    return {str(pattern): _experts(experts) for pattern, experts in by_pattern.items()}


def _experts(given: object) -> tuple[int, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadCopies(given=given)
    found = tuple(n for n in given if isinstance(n, int) and not isinstance(n, bool) and n >= 0)
    if not found or len(found) < len(given) or len(set(found)) < len(found):
        raise BadCopies(given=given)
    return found


def read_pass_option(text: str) -> CopiedExperts:
    """Parse the same text for an option of a pass. Raises BadCopies."""
    return tuple((pattern, _experts(experts)) for pattern, experts in read_copies(text).items())
