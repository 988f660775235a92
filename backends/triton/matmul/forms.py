"""The kernels around a matmul's sums: a program a tile, a program a unit, several programs a tile."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from shardc.backends.triton.emit.memory import Memory
from shardc.backends.triton.emit.module import Part
from shardc.backends.triton.emit.text import VALUES, size_text
from shardc.backends.triton.matmul.contraction import SIZES, Matmul, Writer
from shardc.cost.matmul import Tiling

INDENT = "    "
JOIN_ROWS, JOIN_COLUMNS = 16, 128
"""The tile of the function that adds up parts."""


class Forms:
    """The functions of one matmul under one tiling: ``helpers``, and ``parts`` that are launched in order."""

    def __init__(self, matmul: Matmul, tiling: Tiling, descriptors: bool, memory: Memory) -> None:
        self.matmul, self.tiling, self.memory = matmul, tiling, memory
        self.writer = Writer(matmul, tiling, descriptors)
        self.name, self.integers = matmul.name, memory.sizes
        self.sum_lines, self.finish_lines = self.writer.sum_body(), self.writer.finish_body()
        names = [*(p.name for p in memory.pointers), *self.integers]
        self.sum_uses, self.finish_uses = (
            [p for p in names if _uses(lines, p)]
            for lines in ([*self.sum_lines, *self._descriptors()], self.finish_lines)
        )

    def _descriptors(self) -> list[str]:
        return [f"{d.name} = {d.make}" for d in self.writer.descriptors if d]

    def helpers(self) -> list[str]:
        """The functions that those that are launched call."""
        return [self._place(), self._sum(), self._finish()]

    def parts(self) -> list[Part]:
        """The functions that are launched; adds the workspace that they need."""
        if self.tiling.split > 1:
            return self._split()
        return self._persistent() if self.tiling.persistent else self._tile()

    # What the forms have in common

    @property
    def _batch(self) -> str:
        """Among parameters and arguments: which matmul of several."""
        return "batch, " if self.matmul.axes["b"] else ""

    def _job(self, number: str) -> list[str]:
        """The lines that say which tile, and of which matmul, has a number."""
        if not self._batch:
            return self._where(number)
        return [self._TILES, f"batch = {number} // tiles", *self._where(f"{number} % tiles")]

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
        symbols = "".join(f"{n}, " for n in self.integers)
        return _function(
            f"{self.name}_place",
            f"number, {symbols}BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr",
            "Row and column of a tile. GROUP rows of tiles run together: they read the same columns while "
            "those are in L2.",
            lines,
        )

    def _sum(self) -> str:
        w = self.writer
        if w.by_descriptor:
            given = "left_tiles, right_tiles, first_m, first_n, low, high, "
        else:
            given = (
                "".join(f"{p}, " for p in self.sum_uses if p not in self.integers)
                + f"{self._batch}m, n, low, high, "
            )
        symbols = "".join(f"{n}, " for n in self.integers)
        return _function(
            f"{self.name}_sum",
            f"{given}{symbols}BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr",
            "The products of one tile, added up over the terms from low to high.",
            self.sum_lines,
        )

    def _finish(self) -> str:
        given = "".join(f"{p}, " for p in self.finish_uses if p not in self.integers)
        symbols = "".join(f"{n}, " for n in self.integers)
        return _function(
            f"{self.name}_finish",
            f"total, {given}{self._batch}m, n, {symbols}".rstrip(", "),
            "What is made of one tile of the product.",
            self.finish_lines,
        )

    def _call_sum(self, low: str, high: str) -> str:
        if self.writer.by_descriptor:
            given = ["left_tiles", "right_tiles", "first_m", "first_n"]
        else:
            given = [*(p for p in self.sum_uses if p not in self.integers), f"{self._batch}m", "n"]
        return f"{self.name}_sum({', '.join([*given, low, high, *self.integers])}, BLOCK_M, BLOCK_N, BLOCK_K)"

    def _call_finish(self) -> str:
        given = [p for p in self.finish_uses if p not in self.integers]
        return f"{self.name}_finish({', '.join(['total', *given, f'{self._batch}m', 'n', *self.integers])})"

    def _where(self, number: str) -> list[str]:
        """The lines that say where the tile of a number is."""
        symbols = "".join(f"{n}, " for n in self.integers)
        return [
            f"row, column = {self.name}_place({number}, {symbols}BLOCK_M, BLOCK_N, GROUP)",
            "first_m, first_n = row * BLOCK_M, column * BLOCK_N",
            self.matmul.index("m", "first_m + tl.arange(0, BLOCK_M)"),
            self.matmul.index("n", "first_n + tl.arange(0, BLOCK_N)"),
        ]

    _TILES = "tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)"

    def _blocks(self) -> dict[str, int]:
        t = self.tiling
        return {"BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "GROUP": t.group}

    def _part(self, name: str, lines: list[str], constants: dict[str, int], grid: str, says: str) -> Part:
        lines = [*self.matmul.symbolic(), *lines]
        return Part(name, lines, constants, grid, self.tiling.warps, says, self.tiling.stages)

    def _grid(self, split: str = "") -> str:
        """How many programs there are, as an expression of the launcher."""
        b, m, n = (size_text(self.matmul.size(x), self.matmul.size_names) for x in "bmn")
        batch = f"({b}) * " if b != "1" else ""
        return f"{batch}triton.cdiv({m}, BLOCK_M) * triton.cdiv({n}, BLOCK_N){split}"

    # A program for each tile

    def _tile(self) -> list[Part]:
        lines = [
            *self._job("tl.program_id(0)"),
            *self._descriptors(),
            f"total = {self._call_sum('0', 'K')}",
            self._call_finish(),
        ]
        return [
            self._part(
                self.name, lines, self._blocks(), f"({self._grid()},)", "A program: one tile of the product."
            )
        ]

    # A program for each unit

    def _persistent(self) -> list[Part]:
        descriptors = self._descriptors()
        once, jobs = not self._batch, "tiles * BATCH" if self._batch else "tiles"
        lines = [
            self._TILES,
            *descriptors * once,
            f"for job in tl.range(tl.program_id(0), {jobs}, PROGRAMS, flatten=True):",
        ]
        inside = [
            *self._job("job")[bool(self._batch) :],
            *descriptors * (not once),
            f"total = {self._call_sum('0', 'K')}",
            self._call_finish(),
        ]
        lines += [INDENT + line for line in inside]
        constants = {**self._blocks(), "PROGRAMS": self.matmul.target.units}
        says = "PROGRAMS programs, one for each unit of the GPU: each takes tile after tile."
        return [self._part(self.name, lines, constants, "(PROGRAMS,)", says)]

    # Several programs for each tile

    def _split(self) -> list[Part]:
        matmul, split = self.matmul, self.tiling.split
        count = split * prod(matmul.size(x) for x in "bmn")
        parts = self.memory.work("parts", count, matmul.value.element).name
        which = "(part * BATCH + batch)" if self._batch else "part"
        at = f"{which}{'.to(tl.int64)' if self.matmul.is_far else ''} * M * N + m[:, None] * N + n[None, :]"
        all_tiles = "(tiles * BATCH)" if self._batch else "tiles"
        lines = [
            self._TILES,
            f"part = tl.program_id(0) // {all_tiles}",
            *self._job(f"tl.program_id(0) % {all_tiles}")[bool(self._batch) :],
            *self._descriptors(),
            "low = part * (tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K)",
            "high = tl.minimum(low + tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K, K)",
            f"total = {self._call_sum('low', 'high')}",
            f"tl.store({parts} + {at}, total{self._inside()})",
        ]
        says = "A program: one of SPLIT parts of the sum of one tile."
        first = self._part(
            f"{self.name}_parts",
            lines,
            {**self._blocks(), "SPLIT": split},
            f"({self._grid(' * SPLIT')},)",
            says,
        )
        whole = [
            "columns = tl.cdiv(N, BLOCK_N)",
            "tiles = tl.cdiv(M, BLOCK_M) * columns",
            *["batch = tl.program_id(0) // tiles"] * bool(self._batch),
            self.matmul.index("m", "tl.program_id(0) % tiles // columns * BLOCK_M + tl.arange(0, BLOCK_M)"),
            self.matmul.index("n", "tl.program_id(0) % tiles % columns * BLOCK_N + tl.arange(0, BLOCK_N)"),
            f"total = tl.zeros([BLOCK_M, BLOCK_N], {VALUES[matmul.total]})",
            "for part in range(SPLIT):",
            f"    total += tl.load({parts} + {at}, mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)",
            self._call_finish(),
        ]
        blocks = {"BLOCK_M": JOIN_ROWS, "BLOCK_N": JOIN_COLUMNS, "SPLIT": split}
        says = "A program: the parts of one tile, added up in order, and what is made of them."
        second = self._part(f"{self.name}_join", whole, blocks, f"({self._grid()},)", says)
        return [first, replace(second, num_warps=4, num_stages=1)]

    def _inside(self) -> str:
        tests = [
            f"({x}{side} < {SIZES[x]})"
            for x, side in (("m", "[:, None]"), ("n", "[None, :]"))
            if self.writer.ragged(x)
        ]
        return f", mask={' & '.join(tests)}" if tests else ""


def _uses(lines: list[str], name: str) -> bool:
    return any(re.search(rf"\b{name}\b", line) for line in lines)


def _function(name: str, parameters: str, says: str, lines: list[str]) -> str:
    head = f"def {name}({parameters}):"
    if len(head) > 118:
        head = f"def {name}(\n    {parameters},\n):  # fmt: skip"
    body = "\n".join(INDENT + line if line else "" for line in lines)
    return f'@triton.jit\n{head}\n    """{says}"""\n{body}'
