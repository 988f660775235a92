"""Loops of a kernel: atoms that are adjacent in all tensors become one loop.

A tensor has a dim for each loop. A contiguous ``[8,128,64]`` tensor is one loop of 65,536 in a pointwise
kernel, 1,024 rows of 64 in a row reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.dialects.kern.size import AnySize
from shardc.passes.fuse.grouping.legal import flat, reads
from shardc.passes.fuse.reading.graph import Access, Node
from shardc.passes.fuse.reading.space import Atoms, Dim, Space

Slices = tuple[tuple[AnySize, int, AnySize, int], ...]
"""For each dim of a tensor, or of a finer shape of it: size, first element, count and step."""


@dataclass(frozen=True)
class Tensor:
    """A tensor in the form that loops read: its slice ``cut`` (None: all) reshaped to ``shape``.

    Each dim of ``shape`` is indexed by one of ``loops``; None is a dim that is read at a computed index.
    """

    shape: tuple[AnySize, ...]
    loops: tuple[int | None, ...]
    cut: Slices | None = None


@dataclass(frozen=True)
class IndexTerm:
    """Contribution of a loop to an index: ``(index of loop // inner % size) * factor``."""

    loop: int
    inner: AnySize
    size: AnySize
    factor: AnySize


class Layout:
    """The loops of a group of nodes, the most major first, and their ``sizes``.

    ``apart``: groups of atoms that are in no loop with other atoms.
    """

    def __init__(self, nodes: Sequence[Node], space: Space, apart: Sequence[Atoms] = ()) -> None:
        self._space = space
        self._reduced = {frozenset(space.resolve(node.reduced)) for node in nodes if node.reduce}
        self._made = {node.out for node in nodes}
        runs = [run for a in reads(list(nodes)) for run in self._runs_of(a)]
        runs += [space.resolve(a for dim in node.out_dims for a in dim) for node in nodes]
        runs += [run for atoms in apart if (run := space.resolve(atoms))]
        runs += [run for node in nodes for a in node.accesses if a.jumps for run in self._runs_of(a)]
        runs += [run for node in nodes for group in node.indices if (run := space.resolve(group))]
        makers = {node.out: node for node in nodes}
        for access in (a for node in nodes for a in node.accesses if a.jumps and a.base in makers):
            made = zip(access.dims, makers[access.base].out_dims, strict=True)
            runs += [run for dim, atoms in made if not dim.plain and (run := space.resolve(atoms))]
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

    def _runs_of(self, access: Access) -> list[Atoms]:
        """Return the atoms of an access in memory order, split before dims that are not read whole.

        They are also split behind such dims, except for slices in memory without steps: with the dims behind
        it, such a slice is one run of elements.
        """
        runs: list[list[int]] = [[]]
        is_cut = False
        for dim in access.dims:
            atoms = list(self._space.resolve(dim.atoms))
            if dim.sliced or dim.gathered:
                is_cut = dim.sliced and self._is_run(access, dim)
                runs += [atoms] if is_cut else [atoms, []]
            elif is_cut and not isinstance(dim.size, int):  # the slice's offset would be symbolic
                is_cut = False
                runs.append(atoms)
            else:
                runs[-1].extend(atoms)
        return [tuple(run) for run in runs if run]

    def _is_run(self, access: Access, dim: Dim) -> bool:
        """Return whether a sliced dim is followed in memory by what it is followed by in the loops."""
        return dim.step == 1 and bool(dim.atoms) and not access.gathers and access.base not in self._made

    def _joints(self, runs: Sequence[Atoms]) -> dict[int, int]:
        """Map an atom to the atom that directly follows it in every tensor with either."""
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
            same_kind = all((follower in reduced) == (atom in reduced) for reduced in self._reduced)
            if follower is not None and not others and same_kind and before[follower] == {atom}:
                joints[atom] = follower
        return joints

    def _order(self, nodes: Sequence[Node]) -> Atoms:
        """Return all atoms in the order of the largest result of a pointwise node, or operand of a reduction.

        Atoms of expanded dims, which are in no tensor's memory, come first. Atoms of ops that run over other
        dims, because they are read at computed indices only, come last.
        """
        orders = []
        for node in nodes:
            dims = node.out_dims
            if node.contracts:
                dims = (*dims, node.reduced)
            elif node.reduce:
                read = flat(self._space, node.accesses[0].dims)
                made = self._space.resolve(a for dim in (*dims, node.reduced) for a in dim)
                dims = (tuple(a for a in made if a not in read), read)
            orders.append(self._space.resolve(a for dim in dims for a in dim))
        order = max(orders, key=len)
        return tuple(dict.fromkeys((*order, *(atom for other in orders for atom in other))))

    def place(self, node: Node) -> list[list[IndexTerm]]:
        """Return the row-major index over each of the node's ``indices``, as a sum of terms."""
        return [self.steps(group) for group in node.indices]

    def steps(self, atoms: Atoms) -> list[IndexTerm]:
        """Return the terms of an index, minor atoms first; adjacent atoms of one loop are one term."""
        found: list[IndexTerm] = []
        factor: AnySize = 1
        for atom in reversed(self._space.resolve(atoms)):
            number, size = self._loop[atom], self._space.sizes[atom]
            loop = self.loops[number]
            inner = prod(self._space.sizes[a] for a in loop[loop.index(atom) + 1 :])
            last = found[-1] if found else None
            if last and last.loop == number and last.inner * last.size == inner:
                found[-1] = IndexTerm(number, last.inner, last.size * size, last.factor)
            else:
                found.append(IndexTerm(number, inner, size, factor))
            factor *= size
        return found

    def domain(self, node: Node) -> tuple[int, ...]:
        """Return the loops that a node runs over."""
        atoms = [a for dim in node.out_dims for a in dim] + list(node.reduced)
        return tuple(sorted({self._loop[a] for a in self._space.resolve(atoms)}))

    def reduced(self, node: Node) -> frozenset[int]:
        """Return the loops that a reduction removes."""
        return frozenset(self._loop[a] for a in self._space.resolve(node.reduced))

    def made(self, node: Node) -> Tensor:
        """Return a node's result, with a dim for each loop."""
        atoms = self._space.resolve(a for dim in node.out_dims for a in dim)
        return self._tensor(atoms)

    def read(self, access: Access) -> Tensor:
        """Return a tensor that is read from outside the group."""
        cut = self._cut(access) if any(dim.sliced for dim in access.dims) else None
        return self._tensor(flat(self._space, access.dims), cut)

    def _cut(self, access: Access) -> Slices:
        """Return the slice of each dim; one for a slice and the dims behind it that share its loop."""
        found: list[tuple[AnySize, int, AnySize, int]] = []
        start, loop = None, -1
        for dim in access.dims:
            atoms = self._space.resolve(dim.atoms)
            found.append((dim.size, dim.offset, self._extent(dim), dim.step))
            if dim.sliced:
                start = len(found) - 1 if self._is_run(access, dim) else None
            elif atoms and start is not None and self._loop[atoms[0]] == loop:
                joined = found[start:]
                del found[start:]
                inner = prod(size for size, *_ in joined[1:] if isinstance(size, int))
                size, offset, count, step = joined[0]
                found.append((size * inner, offset * inner, count * inner, step))
            elif atoms:
                start = None
            loop = self._loop[atoms[-1]] if atoms else loop
        return tuple(found)

    def table(self, access: Access) -> Tensor:
        """Return a tensor with gathered or sliced dims, of which single elements are read."""
        dims: list[tuple[AnySize, int | None]] = []
        for dim in access.dims:
            if dim.gathered or dim.sliced:
                dims += [(dim.size, None)] if dim.size != 1 else []
            else:
                loops = dict.fromkeys(self._loop[a] for a in self._space.resolve(dim.atoms))
                dims += [(self.sizes[n], n) for n in loops if not dims or dims[-1][1] != n]
        return Tensor(tuple(size for size, _ in dims), tuple(loop for _, loop in dims))

    def _extent(self, dim: Dim) -> AnySize:
        return prod(self._space.sizes[a] for a in self._space.resolve(dim.atoms))

    def _tensor(self, atoms: Atoms, cut: Slices | None = None) -> Tensor:
        loops = tuple(dict.fromkeys(self._loop[a] for a in atoms))
        return Tensor(tuple(self.sizes[n] for n in loops), loops, cut)


def affine_map(tensor: Tensor, domain: Sequence[int]) -> ir.AffineMap:
    """Return the index map of a tensor in a nest of the loops ``domain``."""
    position: dict[int | None, int] = {loop: d for d, loop in enumerate(domain)}
    return ir.AffineMap.get(len(domain), 0, [ir.AffineDimExpr.get(position[loop]) for loop in tensor.loops])
