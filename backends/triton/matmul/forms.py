"""Forms of a matmul's kernel: one program per tile, per unit of the GPU, or several per tile."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from shardc.backends.triton.emit.memory import Memory
from shardc.backends.triton.emit.module import Part
from shardc.backends.triton.emit.text import VALUES, size_text
from shardc.backends.triton.matmul.contraction import SIZES, Matmul
from shardc.backends.triton.matmul.tile_functions import TileFunctions
from shardc.backends.triton.matmul.tiles import blocks
from shardc.cost.matmul import Tiling

INDENT = "    "
_TILES = "tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)"
JOIN_ROWS, JOIN_COLUMNS = 16, 128
"""Tile of the function that adds up parts."""


class Forms:
    """Functions of one matmul under one tiling: ``helpers``, and ``parts``, which are launched in order."""

    def __init__(self, matmul: Matmul, tiling: Tiling, descriptors: bool, memory: Memory) -> None:
        self.matmul, self.tiling, self.memory = matmul, tiling, memory
        self.functions = TileFunctions(matmul, tiling, descriptors)
        self.name, self.integers = matmul.name, memory.sizes
        self.symbols = "".join(f"{n}, " for n in self.integers)
        self.descriptors = [f"{d.name} = {d.make}" for d in self.functions.descriptors]
        self.sum_lines, self.finish_lines = self.functions.sum_body(), self.functions.finish_body()
        self.batch = "batch, " if matmul.axes["b"] else ""
        """Parameter and argument: the number of a matmul in a batch."""
        names = [p.name for p in memory.pointers]
        if self.descriptors:
            self.sum_given = "left_tiles, right_tiles, first_m, first_n, "
        else:
            self.sum_given = "".join(f"{p}, " for p in names if _uses(self.sum_lines, p))
            self.sum_given += f"{self.batch}m, n, "
        self.finish_given = "".join(f"{p}, " for p in names if _uses(self.finish_lines, p))
        self.finish_given += f"{self.batch}m, n, {self.symbols}"

    def helpers(self) -> list[str]:
        """Return the functions that the launched functions call."""
        return [self._place(), self._sum(), self._finish()]

    def parts(self) -> list[Part]:
        """Return the launched functions; add the workspace that they need."""
        if self.tiling.split > 1:
            return self._split()
        return self._persistent() if self.tiling.persistent else self._tile()

    # Common to all forms

    def _job(self, number: str) -> list[str]:
        """Return the lines that compute the tile, and the matmul of a batch, of a program's number."""
        tile = f"{number} % tiles" if self.batch else number
        return [
            *[f"batch = {number} // tiles"] * bool(self.batch),
            f"row, column = {self.name}_place({tile}, {self.symbols}BLOCK_M, BLOCK_N, GROUP)",
            "first_m, first_n = row * BLOCK_M, column * BLOCK_N",
            self.matmul.index("m", "first_m + tl.arange(0, BLOCK_M)"),
            self.matmul.index("n", "first_n + tl.arange(0, BLOCK_N)"),
        ]

    def _place(self) -> str:
        lines = [
            *self.matmul.symbolic(),
            "rows = tl.cdiv(M, BLOCK_M)",
            "columns = tl.cdiv(N, BLOCK_N)",
            "first = number // (GROUP * columns) * GROUP",
            "height = tl.minimum(rows - first, GROUP)",
            "within = number % (GROUP * columns)",
            "return first + within % height, within // height",
        ]
        return _function(
            f"{self.name}_place",
            f"number, {self.symbols}BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr",
            "Row and column of a tile. GROUP rows of tiles run together: they read the same columns while "
            "those are in L2.",
            lines,
        )

    def _sum(self) -> str:
        given = f"{self.sum_given}low, high, {self.symbols}"
        tile = "BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr"
        says = "The products of one tile, added up over the terms from low to high."
        return _function(f"{self.name}_sum", f"{given}{tile}", says, self.sum_lines)

    def _finish(self) -> str:
        given, says = f"total, {self.finish_given}".rstrip(", "), "What is made of one tile of the product."
        return _function(f"{self.name}_finish", given, says, self.finish_lines)

    def _call_sum(self, low: str, high: str) -> str:
        return f"{self.name}_sum({self.sum_given}{low}, {high}, {self.symbols}BLOCK_M, BLOCK_N, BLOCK_K)"

    def _call_finish(self) -> str:
        return f"{self.name}_finish(total, {self.finish_given}".rstrip(", ") + ")"

    def _part(self, name: str, lines: list[str], constants: dict[str, int], grid: str, says: str) -> Part:
        lines = [*self.matmul.symbolic(), *lines]
        return Part(name, lines, constants, grid, self.tiling.warps, says, self.tiling.stages)

    def _grid(self, split: str = "") -> str:
        """Return the number of programs, as an expression of the launcher."""
        b, m, n = (size_text(self.matmul.size(x), self.integers) for x in "bmn")
        batch = f"({b}) * " if b != "1" else ""
        return f"{batch}triton.cdiv({m}, BLOCK_M) * triton.cdiv({n}, BLOCK_N){split}"

    # A program for each tile

    def _tile(self) -> list[Part]:
        lines = [
            *[_TILES] * bool(self.batch),
            *self._job("tl.program_id(0)"),
            *self.descriptors,
            f"total = {self._call_sum('0', 'K')}",
            self._call_finish(),
        ]
        says = "A program: one tile of the product."
        return [self._part(self.name, lines, blocks(self.tiling), f"({self._grid()},)", says)]

    # A program for each unit

    def _persistent(self) -> list[Part]:
        each = bool(self.batch)
        lines = [
            _TILES,
            *self.descriptors * (not each),
            f"for job in tl.range(tl.program_id(0), tiles{' * BATCH' * each}, PROGRAMS, flatten=True):",
        ]
        inside = [
            *self._job("job"),
            *self.descriptors * each,
            f"total = {self._call_sum('0', 'K')}",
            self._call_finish(),
        ]
        lines += [INDENT + line for line in inside]
        constants = blocks(self.tiling) | {"PROGRAMS": self.matmul.target.units}
        says = "PROGRAMS programs, one for each unit of the GPU: each takes tile after tile."
        return [self._part(self.name, lines, constants, "(PROGRAMS,)", says)]

    # Several programs for each tile

    def _split(self) -> list[Part]:
        matmul, split = self.matmul, self.tiling.split
        count = split * prod(matmul.size(x) for x in "bmn")
        parts = self.memory.work("parts", count, matmul.value.element).name
        which = "(part * BATCH + batch)" if self.batch else "part"
        at = f"{which}{'.to(tl.int64)' if self.matmul.is_far else ''} * M * N + m[:, None] * N + n[None, :]"
        all_tiles = "(tiles * BATCH)" if self.batch else "tiles"
        lines = [
            _TILES,
            f"part = tl.program_id(0) // {all_tiles}",
            *self._job(f"tl.program_id(0) % {all_tiles}"),
            *self.descriptors,
            "low = part * (tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K)",
            "high = tl.minimum(low + tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K, K)",
            f"total = {self._call_sum('low', 'high')}",
            f"tl.store({parts} + {at}, total{self._inside()})",
        ]
        says = "A program: one of SPLIT parts of the sum of one tile."
        constants = blocks(self.tiling) | {"SPLIT": split}
        first = self._part(f"{self.name}_parts", lines, constants, f"({self._grid(' * SPLIT')},)", says)
        whole = [
            "columns = tl.cdiv(N, BLOCK_N)",
            "tiles = tl.cdiv(M, BLOCK_M) * columns",
            *["batch = tl.program_id(0) // tiles"] * bool(self.batch),
            self.matmul.index("m", "tl.program_id(0) % tiles // columns * BLOCK_M + tl.arange(0, BLOCK_M)"),
            self.matmul.index("n", "tl.program_id(0) % tiles % columns * BLOCK_N + tl.arange(0, BLOCK_N)"),
            f"total = tl.zeros([BLOCK_M, BLOCK_N], {VALUES[matmul.total]})",
            "for part in range(SPLIT):",
            f"    total += tl.load({parts} + {at}, mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)",
            self._call_finish(),
        ]
        constants = {"BLOCK_M": JOIN_ROWS, "BLOCK_N": JOIN_COLUMNS, "SPLIT": split}
        says = "A program: the parts of one tile, added up in order, and what is made of them."
        second = self._part(f"{self.name}_join", whole, constants, f"({self._grid()},)", says)
        return [first, replace(second, num_warps=4, num_stages=1)]

    def _inside(self) -> str:
        sides = {"m": "[:, None]", "n": "[None, :]"}
        tests = [f"({x}{side} < {SIZES[x]})" for x, side in sides.items() if self.functions.ragged(x)]
        return f", mask={' & '.join(tests)}" if tests else ""


def _uses(lines: list[str], name: str) -> bool:
    return any(re.search(rf"\b{name}\b", line) for line in lines)


def _function(name: str, parameters: str, says: str, lines: list[str]) -> str:
    head = f"def {name}({parameters}):"
    if len(head) > 118:
        head = f"def {name}(\n    {parameters},\n):  # fmt: skip"
    body = "\n".join(INDENT + line for line in lines)
    return f'@triton.jit\n{head}\n    """{says}"""\n{body}'
