"""Whether the rows of a step had room at their experts: if not, it changed no state, and runs again."""

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
    """Reads what a program with a capacity says of its rows: its last result, the same on all ranks."""

    def __init__(self, results: Iterable[Json]) -> None:
        self._is_counted = any(entry["role"] == OVERFLOW for entry in results)
        self.roomy: Callable[[], S] | None = None
        """Gives the step with room for all rows, over the same state."""

    def __bool__(self) -> bool:
        """Whether the program counts rows."""
        return self._is_counted

    def split(self, made: Sequence[Tensor]) -> tuple[Sequence[Tensor], int]:
        """A program's results without the count, and the count. Waits for a GPU."""
        return (made[:-1], int(made[-1])) if self._is_counted else (made, 0)

    def other(self, count: int, step: int) -> S:
        """The step that has room. Raises ExpertOverflow, on all ranks, where there is none."""
        if self.roomy is None:
            what = f"{count} rows of all devices go to experts that have no room for them"
            raise ExpertOverflow(what, f"step {step}", HINT)
        return self.roomy()
