"""Configurations of functions of rows, sums over rows and elements (``backends/triton/config.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.backends.triton.config import Extent, Tile, power_of_two, tile_of
from shardc.backends.tuning.sketches import NEAR
from shardc.backends.tuning.space import Parameter, Sketch
from shardc.cost.kernel import stream_s
from shardc.cost.machine import Gpu

MOST = 16384
"""Most elements of a tile."""
REGISTERS = 128
"""Most registers of a thread for a tile's live values; as many again remain for the computation."""


def sketch(extent: Extent, target: Gpu) -> Sketch:
    """Return the sketch of one function."""
    warps = Parameter(
        "warps", tuple(n for n in (1, 2, 4, 8, 16, 32) if n * target.warp_size <= target.program_threads)
    )
    default = tile_of(extent, target, {})
    rows = Parameter("rows", _powers(1, min(1024, power_of_two(extent.rows)), default.rows))
    if not extent.sums and not extent.columns:
        name, parameters = "flat", (Parameter("block", _powers(64, 8192, default.columns)), warps)
    else:
        widest = power_of_two(max(1, extent.columns))
        least = widest if extent.whole and extent.sums else min(64, widest)
        columns = Parameter("columns", _powers(least, min(widest, MOST), default.columns))
        name, parameters = "rows", (rows, columns, warps)
        if extent.sums:
            programs = Parameter("programs", tuple(sorted({1, 16, 32, 64, 128, 256, 512, default.programs})))
            name, parameters = "columns", (rows, columns, warps, programs)
    function = _Function(extent, target, parameters, default)
    return Sketch(name, parameters, function.refusal, function.estimate_s)


def _powers(least: int, most: int, also: int) -> tuple[int, ...]:
    """Return the powers of 2 from ``least`` to ``most``, and ``also``."""
    return tuple(sorted({also, *(1 << n for n in range(least.bit_length() - 1, most.bit_length()))}))


@dataclass(frozen=True)
class _Function:
    extent: Extent
    target: Gpu
    parameters: tuple[Parameter, ...]
    default: Tile

    def refusal(self, values: Mapping[str, int]) -> str | None:
        for name in ("block", "rows", "columns", "warps"):
            if name in values and values[name] & (values[name] - 1):
                return f"{name} = {values[name]} is no power of 2"
        e, tile = self.extent, self._tile(values)
        if tile == self.default:
            return None
        elements, threads = tile.rows * tile.columns, tile.warps * self.target.warp_size
        if elements > MOST:
            return f"a tile of {elements} elements, at most {MOST}"
        if threads > max(elements, self.target.warp_size):
            return f"{threads} threads for {elements} elements"
        held = elements * max(e.wide, 1 + e.sums) // threads
        if held > REGISTERS and threads < self.target.program_threads:
            return f"a thread holds {held} values, at most {REGISTERS}"
        if tile.programs > 1 and tile.programs > -(-e.rows // tile.rows):
            return f"{tile.programs} programs for {-(-e.rows // tile.rows)} blocks of rows"
        return None

    def estimate_s(self, values: Mapping[str, int]) -> float:
        e, tile = self.extent, self._tile(values)
        away = sum(
            values[p.name] != getattr(self.default, "columns" if p.name == "block" else p.name)
            for p in self.parameters
        )
        moved, blocks = e.moved_bytes + max(0, tile.programs - 1) * 2 * e.sum_bytes, -(-e.rows // tile.rows)
        loops = -(-max(1, e.columns) // tile.columns)
        if not e.columns and not e.sums:
            programs, steps = -(-e.rows // tile.columns), 1
        elif e.sums:
            programs, steps = tile.programs * loops, -(-blocks // tile.programs)
        else:
            programs, steps = blocks, e.stages * loops
            moved *= 1 if loops == 1 else (1 + e.stages) / 2  # rest is read again from memory
        each = tile.rows * tile.columns * e.item_bytes / (tile.warps * self.target.warp_size)
        narrow = 1 + 0.05 * max(0.0, 16 / max(1.0, each) - 1)  # below a thread's widest load
        return stream_s(moved * min(narrow, 1.5), programs, tile.warps, self.target, steps) * (
            1 + NEAR * away
        )

    def _tile(self, values: Mapping[str, int]) -> Tile:
        return tile_of(self.extent, self.target, values)
