"""``Point``: one choice of everything that a kernel's schedule leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Point:
    """A decision trace: a ``sketch`` and its parameters' values (integers of at least 1), in order."""

    sketch: str
    values: tuple[tuple[str, int], ...]

    @staticmethod
    def of(sketch: str, values: Mapping[str, int]) -> Point:
        return Point(sketch, tuple(values.items()))

    @property
    def config(self) -> dict[str, int]:
        """What ``#kern.config`` says of it."""
        return dict(self.values)

    def __str__(self) -> str:
        return f"{self.sketch}({', '.join(f'{name}={value}' for name, value in self.values)})"
