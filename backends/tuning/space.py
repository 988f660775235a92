"""``Space``: the legal points of a kernel, as parameters of a few sketches."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from shardc.backends.tuning.point import Point
from shardc.diagnostics.tuner import EmptySpace

DRAWS = 1000
"""Number of random draws after which all points are listed, because few are legal."""


@dataclass(frozen=True)
class Parameter:
    """Name of ``#kern.config`` and its values, ordered so that neighbours are similar."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Sketch:
    """One structure of a kernel's loops, with its parameters.

    ``refusal``: returns why values are illegal, computed in closed form, or None. ``estimate_s``: the
    analytic model's seconds. ``counts``: the quantities behind them (cycles, bytes) by name, for the learned
    cost model.
    """

    name: str
    parameters: tuple[Parameter, ...]
    refusal: Callable[[Mapping[str, int]], str | None]
    estimate_s: Callable[[Mapping[str, int]], float]
    counts: Callable[[Mapping[str, int]], Mapping[str, float]] = lambda _: {}


@dataclass(frozen=True)
class Space:
    """Sketches, and a user's constraints: ``pinned`` values, and ``added`` points."""

    sketches: tuple[Sketch, ...]
    pinned: Mapping[str, int] = field(default_factory=dict)
    added: tuple[Point, ...] = ()

    def points(self) -> Iterator[Point]:
        """Every legal point once: the user's own first, then in the order of the sketches."""
        seen: set[Point] = set()
        for point in [*self.added, *(p for sketch in self.sketches for p in self._all(sketch))]:
            if point not in seen and self.refusal(point) is None:
                seen.add(point)
                yield point

    def refusal(self, point: Point) -> str | None:
        """Return why ``point`` is illegal; None if it is legal."""
        wrong = [n for n, value in self.pinned.items() if point.config.get(n, value) != value]
        if wrong:
            return f"{wrong[0]} is pinned to {self.pinned[wrong[0]]}"
        sketch = self.sketch(point.sketch)
        return f"there is no sketch {point.sketch!r}" if sketch is None else sketch.refusal(point.config)

    def estimate_s(self, point: Point) -> float:
        """Return the seconds that the sketch's model estimates."""
        return self._of(point).estimate_s(point.config)

    def counts(self, point: Point) -> Mapping[str, float]:
        """Return the cycles and bytes that the sketch's model counts, by name."""
        return self._of(point).counts(point.config)

    def sample(self, draw: random.Random) -> Point:
        """Draw values uniformly until they are legal. Raises EmptySpace."""
        for _ in range(DRAWS):
            sketch = draw.choice(self.sketches)
            values = {
                p.name: self.pinned[p.name] if p.name in self.pinned else draw.choice(p.values)
                for p in sketch.parameters
            }
            point = Point.of(sketch.name, values)
            if self.refusal(point) is None:
                return point
        legal = list(self.points())  # few points are legal
        if not legal:
            raise EmptySpace(sketches=", ".join(s.name for s in self.sketches), pinned=str(dict(self.pinned)))
        return draw.choice(legal)

    def ranked(self, limit: int) -> Sequence[Point]:
        """Return ``limit`` legal points: the user's own, then those with the smallest estimates."""
        return heapq.nsmallest(limit, self.points(), key=self.rank)

    def rank(self, point: Point) -> tuple[bool, float, Point]:
        """Return a sort key: the user's own points first, then by estimate."""
        return point not in self.added, self.estimate_s(point), point

    def sketch(self, name: str) -> Sketch | None:
        """Return the sketch of this name, if there is one."""
        return next((s for s in self.sketches if s.name == name), None)

    def _of(self, point: Point) -> Sketch:
        return next(s for s in self.sketches if s.name == point.sketch)

    def _all(self, sketch: Sketch) -> Iterator[Point]:
        names = [p.name for p in sketch.parameters]
        for values in product(*map(self._values, sketch.parameters)):
            yield Point(sketch.name, tuple(zip(names, values, strict=True)))

    def _values(self, parameter: Parameter) -> tuple[int, ...]:
        return (self.pinned[parameter.name],) if parameter.name in self.pinned else parameter.values
