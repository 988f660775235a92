"""Overflow of expert capacity: a step whose rows had no room changed no state, and runs again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from torch import Tensor

from ..check import Json
from ..errors import ExpertOverflow
from ..schema.manifest import OVERFLOW

HINT = "nothing was changed: raise expert_capacity, or leave it out: then there is room for all"

S = TypeVar("S")


class Room(Generic[S]):
    """Reader of a program's count of rows without room: its last result, equal on all ranks."""

    def __init__(self, results: Iterable[Json]) -> None:
        self._is_counted = any(entry["role"] == OVERFLOW for entry in results)
        self.roomy: Callable[[], S] | None = None
        """Function that returns the step with room for all rows, over the same state."""

    def __bool__(self) -> bool:
        """Return True if the program counts rows without room."""
        return self._is_counted

    def split(self, made: Sequence[Tensor]) -> tuple[Sequence[Tensor], int]:
        """Return a program's results without the count, and the count. This waits for a GPU."""
        return (made[:-1], int(made[-1])) if self._is_counted else (made, 0)

    def other(self, count: int, step: int) -> S:
        """Return the step with room for all rows. Raises ExpertOverflow, on all ranks, if there is none."""
        if self.roomy is None:
            what = f"{count} rows of all devices go to experts that have no room for them"
            raise ExpertOverflow(what, f"step {step}", HINT)
        return self.roomy()
