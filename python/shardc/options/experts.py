"""How rows go to the experts of other devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shardc.diagnostics.passes.experts import BadCopies

Overflow = Literal["stop", "rerun"]
"""What a step does where more rows go to experts than there is room for."""
CopiedExperts = tuple[tuple[str, tuple[int, ...]], ...]
"""Patterns of names of parameters, or of modules that have them, each with the experts that are copied."""
_ALL = "*"


@dataclass(frozen=True)
class Experts:
    """What ``expert_capacity``, ``on_overflow`` and other options of experts say."""

    capacity: float | None = None
    on_overflow: Overflow = "stop"
    chunks: int = 1
    group: int | None = None
    copies: CopiedExperts = ()

    @property
    def is_guarded(self) -> bool:
        """Whether a step with too little room leaves its state as it was."""
        return self.capacity is not None and self.on_overflow == "rerun"


ROOM_FOR_ALL = Experts()
"""What they say where none is given."""


def read_copies(text: str) -> Mapping[str, object]:
    """``layers.0.*=3:17,layers.1.*=5`` by pattern; ``3:17`` is for all layers. Raises BadCopies."""
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
    """Experts by pattern, given so or as a list for all layers. Raises BadCopies."""
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
    """:func:`read_copies` as an option of a pass has it. Raises BadCopies."""
    return tuple((pattern, _experts(experts)) for pattern, experts in read_copies(text).items())
