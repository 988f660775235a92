"""Space of points with known times, and its measurer, to test searches without a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Parameter, Sketch, Space
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def text(m: int, n: int, k: int) -> str:
    """A matmul as a task has it."""
    return f"""
    #x = affine_map<(m, n, k) -> (m, k)>
    #y = affine_map<(m, n, k) -> (k, n)>
    #z = affine_map<(m, n, k) -> (m, n)>
    func.func @kernel(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty() : tensor<{m}x{n}xf32>
      %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
      %r = linalg.generic {{indexing_maps = [#x, #y, #z], iterator_types = ["parallel", "parallel", "reduction"]}}
          ins(%a, %b : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) outs(%init : tensor<{m}x{n}xf32>) {{
        ^bb0(%l: f32, %s: f32, %acc: f32):
          %p = arith.mulf %l, %s : f32
          %q = arith.addf %p, %acc : f32
          linalg.yield %q : f32
      }} -> tensor<{m}x{n}xf32>
      return %r : tensor<{m}x{n}xf32>
    }}"""  # noqa: E501


def task(m: int = 64, n: int = 64, k: int = 64, label: str = "matmul") -> Task:
    return Task(text(m, n, k), "cpu test", 1, label)


def true_s(v: Mapping[str, int]) -> float:
    """Seconds: best at tile_m=8, tile_n=32, block_k=16; rough enough that the estimate is wrong about it."""
    away = [math.log2(v["tile_m"] / 8), math.log2(v["tile_n"] / 32), math.log2(v["block_k"] / 16)]
    bump = 0.15 * ((v["tile_m"] * 7 + v["tile_n"] * 3 + v["block_k"]) % 5)
    return 1e-3 * (1.0 + 0.12 * sum(a * a for a in away) + 0.1 * abs(away[0] * away[1]) + bump)


def estimate_s(v: Mapping[str, int]) -> float:
    """The model of the machine: right about the direction, wrong about the place."""
    away = [math.log2(v["tile_m"] / 16), math.log2(v["tile_n"] / 16), math.log2(v["block_k"] / 64)]
    return 1e-3 * (1.0 + 0.1 * sum(a * a for a in away))


def refusal(v: Mapping[str, int]) -> str | None:
    return "too many registers" if v["tile_m"] * v["tile_n"] > 2048 else None


def space(values: Sequence[int] = SIZES, **constraints: object) -> Space:
    parameters = tuple(Parameter(name, tuple(values)) for name in ("tile_m", "tile_n", "block_k"))
    return Space((Sketch("tiled", parameters, refusal, estimate_s),), **constraints)


class Surface:
    """Measures by :func:`true_s`; points in ``failing`` crash. ``calls`` has what was measured, in order."""

    def __init__(self, space: Space, failing: frozenset[Point] = frozenset()) -> None:
        self.default_s = true_s(space.ranked(1)[0].config)
        self.failing = failing
        self.calls: list[tuple[Task, Point]] = []

    def begin(self, task: Task, default: Point, incumbent: Trial | None = None) -> None:
        """Nothing to start."""

    def measure(self, task: Task, points: Sequence[Point]) -> list[Trial]:
        self.calls += [(task, p) for p in points]
        return [self._trial(p) for p in points]

    def confirm(self, task: Task, point: Point) -> Trial:
        return self._trial(point)

    def _trial(self, point: Point) -> Trial:
        if point in self.failing:
            return Trial(point, Outcome.CRASHED, said="signal 11")
        seconds = true_s(point.config)
        return Trial(point, Outcome.MEASURED, seconds / self.default_s, seconds)


class Memory:
    """A database without a file. ``limit``: after so many trials it is as if the process were killed."""

    def __init__(self, limit: int | None = None) -> None:
        self.of: dict[str, list[Trial]] = {}
        self.left = limit

    def trials(self, task: Task) -> list[Trial]:
        return list(self.of.get(task.key, []))

    def record(self, task: Task, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left = None if self.left is None else self.left - 1
            self.of.setdefault(task.key, []).append(trial)
