"""Space of matmuls: register tiles, cache blocks, and the division among threads.

The loops are those of ``backends/cpu/matmul/nest.py``. The estimate counts cycles of the busiest thread: the
register tile's products, bound by multiply-adds, by loads or by the second cache; each tile's start and end;
packing; and traffic of the outer caches. The model follows Low et al., "Analytical modeling is enough for
high-performance BLIS" (2016).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from shardc.backends.cpu.config import Config
from shardc.backends.cpu.matmul.product import COLUMNS, IN_PLACE, MATMULS, PACKED, ROWS, Product
from shardc.backends.cpu.matmul.tiles import MAX_ROWS, Tiles, even
from shardc.backends.tuning.sketches import NEAR
from shardc.backends.tuning.space import Parameter, Sketch
from shardc.cost.machine import Cpu

BLOCKS = {"block_m": (48, 96, 192, 768), "block_n": (128, 256, 1024, 4096), "block_k": (256, 512, 1024, 4096)}
SUMS = 12
"""Minimum number of vectors of sums in a register tile, if possible: fewer leave multiply-adds idle."""
BEHIND = 0.2
"""Part of the time of reading the left operand again in place that computation does not hide."""


@dataclass(frozen=True)
class Operands:
    """Properties of a matmul's left and right operands.

    ``along_k``: True if an operand is contiguous along k. ``read_bytes``: bytes read for an element.
    ``work``: additions to compute an element. ``after``: additions to compute a stored element from the
    result. ``apart``: bytes between rows (left: along m, right: along k) of an operand that can be read in
    place, else 0.
    """

    along_k: tuple[bool, bool]
    read_bytes: tuple[int, int]
    work: tuple[int, int]
    after: int = 0
    apart: tuple[int, int] = (0, 0)


def sketch(product: Product, operands: Operands, threads: int, machine: Cpu) -> Sketch:
    """Return the sketch of one matmul's tiles."""
    lanes = machine.vector_bytes // product.sum_bytes
    default = product.tiles(Config())
    rows = sorted({even(product.m, t) for t in range(1, MAX_ROWS + 1)})
    columns = sorted({lanes * even(-(-product.n // lanes), v) for v in range(1, 7)})
    parameters = [Parameter("tile_m", tuple(rows)), Parameter("tile_n", tuple(columns))]
    parameters += [Parameter(name, values) for name, values in BLOCKS.items()]
    lie = zip(("left", "right"), operands.apart, strict=True)
    parameters += [Parameter(name, (PACKED, IN_PLACE)) for name, apart in lie if apart]
    if threads > 1:
        shares = (ROWS, COLUMNS, MATMULS) if product.batch > 1 else (ROWS, COLUMNS)
        parameters.append(Parameter("share", shares))
    space = _Matmul(product, operands, threads, machine, default, tuple(parameters))
    return Sketch("matmul", tuple(parameters), space.refusal, space.estimate_s, space.counts)


@dataclass(frozen=True)
class _Matmul:
    product: Product
    operands: Operands
    threads: int
    machine: Cpu
    default: Tiles
    parameters: tuple[Parameter, ...]

    def refusal(self, values: Mapping[str, int]) -> str | None:
        registers = self.machine.registers
        m, vectors = values["tile_m"], values["tile_n"] // self.default.lanes
        if (taken := m * vectors + vectors + 1) > registers:
            return f"a tile of {m} x {values['tile_n']} takes {taken} vector registers of {registers}"
        if values.get("right") == IN_PLACE and self.product.n % values["tile_n"]:
            columns, size = values["tile_n"], self.product.n
            return f"right = {IN_PLACE} reads whole tiles, and {columns} does not divide {size}"
        tile, least = f"a tile of {m} x {values['tile_n']}", self._least()
        if m * vectors < least:
            return f"{tile} adds up {m * vectors} vectors, where {least} hide latency"
        tiles = self.product.tiles(Config.of(values))
        if (tiles.m, tiles.n) != (m, values["tile_n"]):
            return f"{tile} is evened out to {tiles.m} x {tiles.n}"
        for parameter in self.parameters[2:5]:
            name, value, known = parameter.name, values[parameter.name], parameter.values
            for other in known[: known.index(value)] if value in known else ():
                if self.product.tiles(Config.of({**values, name: other})) == tiles:
                    return f"{name} = {value} makes the blocks that {other} makes: {getattr(tiles, name)}"
        return None

    def _least(self) -> int:
        """Return the minimum number of a tile's sums, in vectors."""
        whole = self.product.m * -(-self.product.n // self.default.lanes)
        return min(SUMS, whole, self.default.m * self.default.n // self.default.lanes)

    def estimate_s(self, values: Mapping[str, int]) -> float:
        config = Config.of(values)
        tiles = self.product.tiles(config)
        cycles = sum(self._cycles(tiles, config).values()) * (1 + NEAR * self._steps(values))
        return cycles / self.machine.clock_hz

    def counts(self, values: Mapping[str, int]) -> Mapping[str, float]:
        """Return cycles of each kind, and the bytes of register tiles and blocks."""
        config = Config.of(values)
        t, item = self.product.tiles(config), self.product.sum_bytes // self.product.terms
        columns = min(t.block_n, self.product.n)
        held = {
            "left tile": t.m * t.block_k,
            "right tile": t.n * t.block_k,
            "left block": t.block_m * t.block_k,
        }
        held |= {"right block": columns * t.block_k, "sums": columns * t.block_m}
        p, bytes_ = self.product, {name: n * item for name, n in held.items()}
        blocks = -(-p.n // t.block_n) * -(-p.m // t.block_m) * -(-p.k // t.block_k)
        return {**self._cycles(t, config), **bytes_, "blocks": blocks}

    def _steps(self, values: Mapping[str, int]) -> int:
        """Return the distance from the default, in steps of the parameters."""
        total = 0
        for parameter in self.parameters[:5]:
            name, known = parameter.name, parameter.values
            if values[name] in known:
                away = [abs(value - getattr(self.default, name.replace("tile_", ""))) for value in known]
                total += abs(known.index(values[name]) - away.index(min(away)))
        return total

    def _cycles(self, t: Tiles, config: Config) -> dict[str, float]:
        """Return cycles by their cause."""
        p, machine, cost = self.product, self.machine, self.machine.cycles
        item = p.sum_bytes // p.terms
        alone, by_columns = p.alone(config), p.by_columns(t, config)
        lies = p.reads_left(config), p.reads_right(t, config)
        together = 1 if alone else self.threads
        matmuls = -(-p.batch // self.threads) if alone else p.batch
        blocks = -(-p.n // t.block_n)
        panels, tiles = -(-min(p.n, t.block_n) // t.n), -(-p.m // t.m)
        if by_columns:
            panels = -(-panels // together)
        elif not alone:
            tiles = -(-tiles // together)
        row_blocks, terms_blocks = -(-tiles * t.m // t.block_m), -(-p.k // t.block_k)
        panels_all = panels * blocks if blocks == 1 or by_columns else -(-p.n // t.n)
        # register tiles
        step = self._step(t, item, lies[1])
        ends = 20 + (t.m * t.n // t.lanes) * (1.0 if terms_blocks == 1 else 2.5)
        found = {
            "products": tiles * panels_all * -(-p.k // p.terms) * step,
            "ends": tiles * panels_all * terms_blocks * ends,
        }
        behind = 0.0
        # reads of both operands from beyond the second-level cache
        right, left = panels * p.k * t.n * item, min(t.block_m, tiles * t.m) * t.block_k * item
        if left + 2 * t.n * t.block_k * item > 0.75 * machine.caches[1]:
            behind += 0.5 * panels_all * tiles * t.m * p.k * item / machine.rates[2]
        if not lies[1]:
            behind += blocks * row_blocks * cost(right, right) * (0.3 if row_blocks > 1 else 0.15)
        partials = panels * t.block_m * t.n * p.sum_bytes
        if terms_blocks > 1:
            behind += blocks * row_blocks * terms_blocks * 0.5 * cost(2 * partials, partials + left)
        found["behind"] = behind
        found["right"] = self._right(t, item, together, right, row_blocks, lies[1])
        found["left"] = self._left(blocks, tiles * t.m, t, lies[0])
        # computation on the result
        elements = tiles * t.m * panels_all * t.n
        stored = 2 * p.sum_bytes / machine.rate(p.m * p.n * p.sum_bytes)
        made = (0.5 + self.operands.after) / t.lanes + stored
        found["results"] = elements * made + tiles * t.m * panels_all * 6
        found["meetings"] = 0 if alone or self.threads == 1 else blocks * 2 * machine.barrier
        return {name: matmuls * cycles for name, cycles in found.items()}

    def _step(self, t: Tiles, item: int, lies: bool) -> float:
        """Return the cycles of a register tile for each step along k."""
        machine, vectors = self.machine, t.n // t.lanes
        products, loads = t.m * vectors, t.m + vectors
        panel = t.n * t.block_k * item
        level = 0 if panel + t.m * t.block_k * item <= 0.75 * machine.caches[0] else 1
        pages = 0.0
        if lies:  # rows of the panel share few cache sets if their distance is a power of two
            apart = self.operands.apart[1]
            sets = machine.sets // gcd(machine.sets, max(1, apart // machine.line_bytes))
            level = max(level, 1) if t.block_k <= sets * machine.ways else 2
            pages = machine.page * min(1.0, apart / 4096) * min(1.0, t.block_k / 256)
        fetched = t.n * t.terms * item / machine.rates[level] if level else 0.0
        bound = max(products / machine.fma, machine.latency, loads / 2, fetched)
        rows = machine.row if self.operands.along_k[0] else machine.vector
        return bound + rows * t.m + machine.vector * vectors + 0.08 * fetched + pages

    def _right(self, t: Tiles, item: int, together: int, block: float, row_blocks: int, lies: bool) -> float:
        """Return the cycles to read the right operand: packed in blocks of ``block`` bytes, or in place."""
        p, cost, (_, read) = self.product, self.machine.cycles, self.operands.read_bytes
        columns = -(-p.n // t.n) * t.n / together
        if lies:
            return row_blocks * cost(p.n * p.k * read, p.n * p.k * read)
        made = columns * p.k * ((0.5 if self.operands.along_k[1] else 0.25) + self.operands.work[1] / t.lanes)
        return made + cost(columns * p.k * read, p.n * p.k * read) + 1.5 * cost(columns * p.k * item, block)

    def _left(self, blocks: int, rows: int, t: Tiles, lies: bool) -> float:
        """Return the cycles to read the left operand, for each block of columns."""
        p, cost = self.product, self.machine.cycles
        held = p.m * p.k * self.operands.read_bytes[0]
        read = rows * p.k * self.operands.read_bytes[0]
        made = rows * p.k * (0.7 + self.operands.work[0] / t.lanes)
        later = min(held, self.machine.caches[2] / 2)
        again = (blocks - 1) * cost(read, later)
        return cost(read, held) + (BEHIND * again if lies else blocks * made + again)
