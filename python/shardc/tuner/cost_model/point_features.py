"""Features of a point for the cost model: values, tiling of loops, sizes of tiles, the estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from shardc.backends.tuning.point import Point
from shardc.tuner.cost_model.kernel_features import KernelFeatures

CUTS = {"rows": "m", "columns": "n", "queries": "m", "keys": "n", "piece": "n"}
"""Parameter -> the loop that it tiles, if its name does not end with the loop's letter."""
TILES = (
    ("block_m", "block_k"),
    ("block_k", "block_n"),
    ("block_m", "block_n"),
    ("tile_m", "tile_n"),
    ("tile_n", "block_k"),
    ("rows", "columns"),
    ("queries", "keys"),
)
"""Groups of parameters whose product is the number of elements of a tile."""


def point_features(
    kernel: KernelFeatures, point: Point, default: Point, estimate: float, figures: Mapping[str, float]
) -> dict[str, float]:
    """Return features by name.

    ``estimate``: log of the estimated time relative to the default's. ``figures``: figures of the binary.
    """
    config, usual = point.config, default.config
    found = {**kernel.values, "estimate": estimate, f"sketch {point.sketch}": 1.0}
    for name, value in config.items():
        found[name] = math.log2(value)
        if name in usual:
            found[f"{name} over default"] = math.log2(value / usual[name])
        found |= _cut(name, value, kernel)
    for one, other in TILES:
        if one in config and other in config:
            found[f"{one} x {other}"] = math.log2(config[one] * config[other] * kernel.element_bytes)
    return found | {f"binary {name}": float(value) for name, value in figures.items()}


def count_features(counts: Mapping[str, float], usual: Mapping[str, float]) -> dict[str, float]:
    """Return features from the space's model: counts of a point, and of the default (``usual``)."""
    found: dict[str, float] = {}
    for name, count in counts.items():
        found[f"{name} counted"] = math.log2(1.0 + count)
        found[f"{name} counted over default"] = math.log2((1.0 + count) / (1.0 + usual.get(name, 0.0)))
    return found


def _cut(name: str, value: int, kernel: KernelFeatures) -> Iterator[tuple[str, float]]:
    """Yield the number of tiles of a parameter's loop, and the overhead of the last, partial tile."""
    letter = CUTS.get(name, name[-1] if name[-2:] in ("_m", "_n", "_k") else None)
    if letter is not None:
        size = max(1, kernel.sizes[letter])
        pieces = -(-size // value)
        yield f"{name} pieces", math.log2(pieces)
        yield f"{name} edge", pieces * value / size
