"""How rows go to the experts of other devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Overflow = Literal["stop", "rerun"]
"""What a step does where more rows go to experts than there is room for."""


@dataclass(frozen=True)
class Experts:
    """What ``expert_capacity``, ``on_overflow``, ``expert_chunks`` and ``expert_group`` of a step say."""

    capacity: float | None = None
    on_overflow: Overflow = "stop"
    chunks: int = 1
    group: int | None = None

    @property
    def is_guarded(self) -> bool:
        """Whether a step with too little room leaves its state as it was."""
        return self.capacity is not None and self.on_overflow == "rerun"


ROOM_FOR_ALL = Experts()
"""What they say where none is given."""
