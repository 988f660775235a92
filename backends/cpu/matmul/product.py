"""What a contraction is as a product of matrices, and who computes which part of it: before the loops."""

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
"""Matmuls of one shape (a batch) from which on each thread takes some of them, instead of a part of each."""

FEW_TILES = 16
"""With fewer tiles of rows than this, threads take columns each."""

ROWS, COLUMNS, MATMULS = 1, 2, 3
"""What ``share`` of a configuration can be."""

PACKED, IN_PLACE = 1, 2
"""What ``left`` and ``right`` of a configuration can be."""


@dataclass(frozen=True)
class Product:
    """``batch`` times [m, k] by [k, n]. Elements of the sums take ``sum_bytes``, packed ones of the operands
    ``sum_bytes // terms``, of which an instruction multiplies ``terms`` neighbours along k. ``left_lies``:
    the left operand is memory contiguous along k; ``right_lies``: the right one is, along the columns.
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
        """Whether each thread does whole matmuls by itself."""
        return config.share == MATMULS if config.share else self.batch >= MANY

    def by_columns(self, tiles: Tiles, config: Config) -> bool:
        """Whether threads that do a matmul together take columns each, rather than rows."""
        return config.share == COLUMNS if config.share else -(-self.m // tiles.m) < FEW_TILES

    def reads_left(self, config: Config) -> bool:
        """Whether the left operand is read where it lies."""
        return config.left == IN_PLACE and self.left_lies

    def reads_right(self, tiles: Tiles, config: Config) -> bool:
        """The same of the right one, if tiles divide its columns. Pairs along k need packing."""
        return config.right == IN_PLACE and self.right_lies and self.n % tiles.n == 0 and self.terms == 1

    def tiles(self, config: Config) -> Tiles:
        packed_bytes = Cpu.private_bytes if self.alone(config) else Cpu.packed_bytes
        sizes = (self.m, self.n, self.k)
        return find_tiles(config, sizes, self.sum_bytes, self.terms, packed_bytes, self.reads_left(config))


@dataclass(frozen=True)
class Operand:
    """A factor as it is multiplied. ``lies``: the argument that it is and where its elements lie, if it may
    be read there. ``along_k``: most of what it is made of is contiguous along k, not along its own axes.
    """

    factor: Factor
    lies: tuple[Argument, Linear] | None
    along_k: bool


def find_product(
    nest: Nest, contraction: Contraction, value: Computed, roots: Roots
) -> tuple[Product, Operand, Operand]:
    """The product whose result is ``value``, and its left and its right operand."""
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
    """The argument that a factor is, and where its elements lie, if they are contiguous along ``fast``, in
    rows along ``slow`` that are equally far apart; None if it must be packed.
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
    """The tensors that a factor reads, with their index."""
    generic = Result(root).generic
    return [(generic.operands[n], generic.operand_index(n, root.dims)) for n in factor.operands]
