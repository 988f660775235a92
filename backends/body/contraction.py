"""Recognition of reductions that are matmuls: sums of products of two factors, each with its own loops."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.body.graph import Generic, Value
from shardc.backends.body.linear import Axis, Index, Linear, row_major
from shardc.backends.body.roots import Root, Roots


@dataclass(frozen=True)
class Factor:
    """Factor of the products: ``value`` in the reduction's body, computed from the ``operands``."""

    value: ir.Value
    operands: frozenset[int]

    def axes(self, root: Root) -> frozenset[Axis]:
        """Return the axes on which the factor depends."""
        indices = [index for _, index in self._read(root)]
        return frozenset(axis for index in indices for position in index for axis, _ in position.terms)

    def _read(self, root: Root) -> list[tuple[Value, Index]]:
        generic = root.generic
        assert generic is not None
        return [(generic.operands[n], generic.operand_index(n, root.dims)) for n in self.operands]

    def offsets(self, root: Root, roots: Roots) -> list[Linear]:
        """Return the offsets of its elements, in elements of each tensor from which it is computed."""
        ends = roots.reads_of(self._read(root)).ends
        return [row_major(index, value.shape) for value, index in ends if index is not None]


@dataclass(eq=False)
class Contraction:
    """Contraction ``C[batch, m, n] = init + sum_k left[batch, m, k] * right[batch, k, n]``.

    Each letter has a list of axes, in the order of memory, the slowest first. The result is contiguous along
    ``n``, or along neither ``m`` nor ``n``.
    """

    root: Root
    left: Factor
    right: Factor
    batch: list[Axis]
    m: list[Axis]
    n: list[Axis]
    k: list[Axis]


def pairs(contraction: Contraction) -> tuple[Factor, Factor] | None:
    """Return the factors in bf16, if an f32 sum multiplies two values widened from bf16; otherwise None."""
    left, right = _widened(contraction.left), _widened(contraction.right)
    return None if left is None or right is None else (left, right)


def _widened(factor: Factor) -> Factor | None:
    """Return the bf16 value that ``factor`` widens to f32; None if it is something else."""
    if isinstance(factor.value, ir.BlockArgument):
        return None
    made = factor.value.owner.operation
    types = [str(v.type) for v in (*made.operands, factor.value)] if made.name == "arith.extf" else []
    return Factor(made.operands[0], factor.operands) if types == ["bf16", "f32"] else None


def is_contraction(root: Root) -> bool:
    return _letters(root) is not None


def find_contraction(root: Root, order: list[Axis]) -> Contraction:
    """Return the contraction that ``root`` is. ``order``: the axes left after merging, the slowest first."""
    found = _letters(root)
    assert found is not None
    left, right, letters = found
    offset = row_major(root.result_index(0), root.result_shape(0))
    batch, m, n, k = ([a for a in order if a in axes] for axes in letters)
    if any(offset.factor(a) == 1 for a in m):
        left, right, m, n = right, left, n, m
    return Contraction(root, left, right, batch, m, n, k)


def _letters(root: Root) -> tuple[Factor, Factor, tuple[frozenset[Axis], ...]] | None:
    factors = None if root.generic is None or 0 in root.sizes else _factors(root.generic)
    if factors is None:
        return None
    left, right = factors
    a, b = left.axes(root), right.axes(root)
    m, n = root.parallel & a - b, root.parallel & b - a
    whole = root.reduced <= a & b and root.parallel <= a | b
    if not (whole and m and n and root.reduced):
        return None
    return left, right, (root.parallel & a & b, m, n, root.reduced)


def _factors(generic: Generic) -> tuple[Factor, Factor] | None:
    """Return the two factors of ``generic``, if it sums products in f32 or f64; else None."""
    if len(generic.inits) != 1 or str(generic.inits[0].element) not in ("f32", "f64"):
        return None
    join = generic.join(0)
    made = generic.made_here(join.term) if join is not None and join.op.name == "arith.addf" else None
    if made is None or made.name != "arith.mulf":
        return None
    left, right = (_factor(value, generic) for value in made.operands)
    return None if left is None or right is None else (left, right)


def _factor(value: ir.Value, generic: Generic) -> Factor | None:
    operands: set[int] = set()
    waiting = [value]
    while waiting:
        next_ = waiting.pop()
        if isinstance(next_, ir.BlockArgument) and next_.owner == generic.block:
            operands.add(next_.arg_number)
        elif (made := generic.made_here(next_)) is not None:
            if made.name in ("linalg.index", "tensor.extract"):
                return None
            waiting += list(made.operands)
    return Factor(value, frozenset(operands))
