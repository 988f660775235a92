"""Contraction as a matmul, and the division of its work among threads, before loops are generated."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.backends.body.contraction import Contraction, Factor, pairs
from shardc.backends.body.graph import Argument, Computed, Value
from shardc.backends.body.linear import Axis, Index, Linear, Picked, row_major
from shardc.backends.body.roots import Root, Roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import width
from shardc.backends.cpu.emit.nests import Nest
from shardc.backends.cpu.emit.result import Result
from shardc.backends.cpu.host import multiplies_pairs
from shardc.backends.cpu.matmul.tiles import Tiles, find_tiles
from shardc.cost.machine import Cpu

MANY = 16
"""Batch size from which on each thread takes whole matmuls, instead of a part of each."""

FEW_TILES = 16
"""Number of row tiles below which threads divide the columns."""

ROWS, COLUMNS, MATMULS = 1, 2, 3
"""Values of ``share`` in a configuration."""

PACKED, IN_PLACE = 1, 2
"""Values of ``left`` and ``right`` in a configuration."""


@dataclass(frozen=True)
class Product:
    """Batched matmul: ``batch`` times [m, k] by [k, n].

    ``sum_bytes``: bytes of a sum's element. ``terms``: number of adjacent elements along k that one
    instruction multiplies; packed elements take ``sum_bytes // terms``. ``left_lies``: True if the left
    operand is in memory and contiguous along k. ``right_lies``: True if the right one is, along the columns.
    """

    batch: int
    m: int
    n: int
    k: int
    sum_bytes: int
    terms: int
    left_lies: bool = False
    right_lies: bool = False

    def alone(self, config: Config) -> bool:
        """Return True if each thread computes whole matmuls."""
        return config.share == MATMULS if config.share else self.batch >= MANY

    def by_columns(self, tiles: Tiles, config: Config) -> bool:
        """Return True if threads divide a matmul's columns, rather than its rows."""
        return config.share == COLUMNS if config.share else -(-self.m // tiles.m) < FEW_TILES

    def reads_left(self, config: Config) -> bool:
        """Return True if the left operand is read in place."""
        return config.left == IN_PLACE and self.left_lies

    def reads_right(self, tiles: Tiles, config: Config) -> bool:
        """Return True if the right operand is read in place.

        Tiles must divide its columns. Pairs along k need packing.
        """
        return config.right == IN_PLACE and self.right_lies and self.n % tiles.n == 0 and self.terms == 1

    def tiles(self, config: Config) -> Tiles:
        packed_bytes = Cpu.private_bytes if self.alone(config) else Cpu.packed_bytes
        sizes = (self.m, self.n, self.k)
        return find_tiles(config, sizes, self.sum_bytes, self.terms, packed_bytes, self.reads_left(config))


@dataclass(frozen=True)
class Operand:
    """Factor of a matmul.

    ``lies``: the argument and its elements' positions, if it can be read in place. ``along_k``: True if most
    of the tensors from which it is computed are contiguous along k, not along its own axes.
    """

    factor: Factor
    lies: tuple[Argument, Linear] | None
    along_k: bool


def find_product(
    nest: Nest, contraction: Contraction, value: Computed, roots: Roots
) -> tuple[Product, Operand, Operand]:
    """Return the matmul whose result is ``value``, and its left and right operands."""
    c, factors, terms = contraction, (contraction.left, contraction.right), 1
    batch, m, n, k = (int(prod(nest.sizes[a] for a in axes)) for axes in (c.batch, c.m, c.n, c.k))
    if multiplies_pairs() and k % 2 == 0 and (narrow := pairs(c)):
        factors, terms = narrow, 2
    left, right = (
        Operand(factor, as_it_lies(factor, fast, slow, c.root, roots), _along_k(factor, own, c.root, roots))
        for factor, own, fast, slow in ((factors[0], c.m, c.k, c.m), (factors[1], c.n, c.n, c.k))
    )
    lie = left.lies is not None, right.lies is not None
    return Product(batch, m, n, k, width(value.element) // 8, terms, *lie), left, right


def _along_k(factor: Factor, axes: list[Axis], root: Root, roots: Roots) -> bool:
    found = [o for o in factor.offsets(root, roots) if o.terms]
    across = sum(any(o.factor(a) == 1 for a in axes) for o in found)
    return 2 * across < len(found)


def as_it_lies(
    factor: Factor, fast: list[Axis], slow: list[Axis], root: Root, roots: Roots
) -> tuple[Argument, Linear] | None:
    """Return a factor's argument and its elements' positions, if it can be read in place; else None.

    It must be contiguous along ``fast``, with a constant stride along ``slow``.
    """
    if not isinstance(factor.value, ir.BlockArgument) or len(fast) != 1 or len(slow) != 1:
        return None
    reads = roots.reads_of(read_by(factor, root))
    if reads.between or len(reads.ends) != 1:
        return None
    ((value, index),) = reads.ends
    if index is None or not isinstance(value, Argument) or value.element != factor.value.type:
        return None
    offset = row_major(index, value.shape)
    plain = not any(isinstance(axis, Picked) for axis, _ in offset.terms) and offset.factor(fast[0]) == 1
    return (value, offset) if plain and offset.factor(slow[0]) != 0 else None


def read_by(factor: Factor, root: Root) -> list[tuple[Value, Index]]:
    """Return the tensors that a factor reads, with their indices."""
    generic = Result(root).generic
    return [(generic.operands[n], generic.operand_index(n, root.dims)) for n in factor.operands]
