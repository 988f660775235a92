"""``Point``: one complete configuration of a kernel's schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Point:
    """Sketch and the values of its parameters (integers of at least 1), in order."""

    sketch: str
    values: tuple[tuple[str, int], ...]

    @staticmethod
    def of(sketch: str, values: Mapping[str, int]) -> Point:
        return Point(sketch, tuple(values.items()))

    @property
    def config(self) -> dict[str, int]:
        """Content of its ``#kern.config``."""
        return dict(self.values)

    def __str__(self) -> str:
        return f"{self.sketch}({', '.join(f'{name}={value}' for name, value in self.values)})"
