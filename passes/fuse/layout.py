"""The loops of one kernel: atoms that always stand side by side become one loop, and tensors get a dim for each loop.

A contiguous ``[8,128,64]`` tensor of a pointwise kernel is one loop of 65,536; with a row reduction it is 1,024 rows of 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.passes.fuse.graph import Access, Node
from shardc.passes.fuse.legal import reads
from shardc.passes.fuse.space import Atoms, Space

Index = tuple[tuple[tuple[int, int], ...], int]
"""An index of one dim: terms (loop, factor), and a constant."""


@dataclass(frozen=True)
class Tensor:
    """How a tensor is seen by the loops: reshaped to ``shape``, and then read at ``index``."""

    shape: tuple[int, ...]
    index: tuple[Index, ...]


class Layout:
    """The loops of a group of nodes, the most major first; ``sizes`` and whether each is ``reduced``."""

    def __init__(self, nodes: Sequence[Node], space: Space) -> None:
        self._space = space
        self._reduced = {a for node in nodes for a in space.resolve(node.reduced)}
        runs = [run for a in reads(list(nodes)) for run in self._runs_of(a)]
        runs += [space.resolve(a for dim in node.out_dims for a in dim) for node in nodes]
        follows = self._joints(runs)
        order = self._order(nodes)
        self._loop: dict[int, int] = {}
        self.loops: list[Atoms] = []
        for atom in order:
            if self.loops and follows.get(self.loops[-1][-1]) == atom:
                self.loops[-1] += (atom,)
            else:
                self.loops.append((atom,))
            self._loop[atom] = len(self.loops) - 1
        self.sizes = [prod(space.sizes[a] for a in loop) for loop in self.loops]
        self.reduced = [loop[0] in self._reduced for loop in self.loops]

    def _runs_of(self, access: Access) -> list[Atoms]:
        """The atoms of an access in memory order, cut where a dim is read in part."""
        runs: list[list[int]] = [[]]
        for dim in access.dims:
            if dim.sliced:
                runs += [list(self._space.resolve(dim.atoms)), []]
            else:
                runs[-1].extend(self._space.resolve(dim.atoms))
        return [tuple(run) for run in runs if run]

    def _joints(self, runs: Sequence[Atoms]) -> dict[int, int]:
        """atom -> the one that directly follows it wherever either stands."""
        after: dict[int, set[int | None]] = {}
        before: dict[int, set[int | None]] = {}
        for run in runs:
            padded: list[int | None] = [None, *run, None]
            for left, atom, right in zip(padded, run, padded[2:], strict=False):
                before.setdefault(atom, set()).add(left)
                after.setdefault(atom, set()).add(right)
        joints: dict[int, int] = {}
        for atom, followers in after.items():
            (follower, *others) = followers
            same_kind = follower is not None and (follower in self._reduced) == (atom in self._reduced)
            if follower is not None and not others and same_kind and before[follower] == {atom}:
                joints[atom] = follower
        return joints

    def _order(self, nodes: Sequence[Node]) -> Atoms:
        """All atoms, as they lie in the largest tensor: the result of a pointwise node, or what a reduction reads."""
        orders = []
        for node in nodes:
            dims = [dim.atoms for dim in node.accesses[0].dims] if node.reduce else node.out_dims
            orders.append(self._space.resolve(a for dim in dims for a in dim))
        return max(orders, key=len)

    def domain(self, node: Node) -> tuple[int, ...]:
        """The loops that a node runs over."""
        atoms = [a for dim in node.out_dims for a in dim] + list(node.reduced)
        return tuple(sorted({self._loop[a] for a in self._space.resolve(atoms)}))

    def made(self, node: Node) -> Tensor:
        """A node's result, a dim for each loop."""
        atoms = self._space.resolve(a for dim in node.out_dims for a in dim)
        loops = list(dict.fromkeys(self._loop[a] for a in atoms))
        return Tensor(tuple(self.sizes[n] for n in loops), tuple((((n, 1),), 0) for n in loops))

    def read(self, access: Access) -> Tensor:
        """A tensor from outside: a dim for each loop, and those of which a part is read as they are."""
        shape: list[int] = []
        index: list[Index] = []
        for dim in access.dims:
            atoms = self._space.resolve(dim.atoms)
            if dim.sliced:
                shape.append(dim.size)
                index.append((self._terms(atoms, dim.step), dim.offset))
                continue
            for atom in atoms:
                loop = self._loop[atom]
                if self.loops[loop][0] == atom:
                    shape.append(self.sizes[loop])
                    index.append((((loop, 1),), 0))
        return Tensor(tuple(shape), tuple(index))

    def _terms(self, atoms: Atoms, step: int) -> tuple[tuple[int, int], ...]:
        """A dim's index over several loops, each times the number of elements that it steps over."""
        loops = list(dict.fromkeys(self._loop[a] for a in atoms))
        terms, factor = [], step
        for loop in reversed(loops):
            terms.append((loop, factor))
            factor *= self.sizes[loop]
        return tuple(reversed(terms))


def affine_map(tensor: Tensor, domain: Sequence[int]) -> ir.AffineMap:
    """The index map of a tensor in a nest of the loops ``domain``."""
    position = {loop: d for d, loop in enumerate(domain)}
    results = []
    for terms, constant in tensor.index:
        found: ir.AffineExpr = ir.AffineConstantExpr.get(constant)
        for loop, factor in terms:
            term: ir.AffineExpr = ir.AffineDimExpr.get(position[loop])
            if factor != 1:
                term = ir.AffineExpr.get_mul(term, ir.AffineConstantExpr.get(factor))
            found = term if isinstance(found, ir.AffineConstantExpr) and found.value == 0 else ir.AffineExpr.get_add(term, found)
        results.append(found)
    return ir.AffineMap.get(len(domain), 0, results)
