"""Roots: the values with their own loops, which are a kernel's results and reductions.

All other values are computed where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from shardc.backends.body.combiner import Combiner, combiners
from shardc.backends.body.graph import (
    Argument,
    Computed,
    Generic,
    Graph,
    Slice,
    Splat,
    Undefined,
    Value,
    View,
)
from shardc.backends.body.linear import Axis, Index, Linear, Shape
from shardc.dialects.kern.size import AnySize

Stop = Callable[[Computed, Index], bool]


@dataclass(eq=False)
class Root:
    """Loops over ``dims`` that store ``value`` (pointwise), or in which ``generic`` accumulates.

    ``stores``: for each result of the root, the numbers of the kernel's results that it is written to.
    ``once``: whether other roots read its value from memory also where their loops are at the same index.
    """

    number: int
    sizes: Shape
    reduces: tuple[bool, ...]
    value: Value | None = None
    generic: Generic | None = None
    stores: list[list[int]] = field(default_factory=list)
    dims: Index = ()
    once: bool = False

    @property
    def is_reduction(self) -> bool:
        return self.generic is not None

    @cached_property
    def combiners(self) -> list[Combiner] | None:
        return combiners(self.generic) if self.generic else None

    @property
    def loops(self) -> dict[Axis, AnySize]:
        """Axis -> size, for every loop of a size other than 1."""
        return {d.plain(): size for d, size in zip(self.dims, self.sizes, strict=True) if size != 1}

    @property
    def parallel(self) -> frozenset[Axis]:
        return self._axes(False)

    @property
    def reduced(self) -> frozenset[Axis]:
        return self._axes(True)

    def _axes(self, reduced: bool) -> frozenset[Axis]:
        every = zip(self.dims, self.sizes, self.reduces, strict=True)
        return frozenset(d.plain() for d, size, r in every if size != 1 and r == reduced)

    def result_index(self, result: int) -> Index:
        """Return the index at which result ``result`` is written when the loops are at ``dims``."""
        if self.generic is None:
            return self.dims
        return self.generic.operand_index(len(self.generic.inputs) + result, self.dims)

    def result_shape(self, result: int) -> Shape:
        return self.generic.inits[result].shape if self.generic else self.sizes

    def result_count(self) -> int:
        return len(self.generic.inits) if self.generic else 1

    def read(self) -> Iterator[tuple[Value, Index]]:
        """Yield the tensors, with indices, whose elements one iteration of the loops reads."""
        if self.value is not None:
            yield self.value, self.dims
        if self.generic is None:
            return
        for number, value in enumerate(self.generic.inputs):
            if number in self.generic.read_operands:
                yield value, self.generic.operand_index(number, self.dims)
        for extract in self.generic.extracts.values():
            yield extract.source, extract.index(self.generic, self.dims)


@dataclass(eq=False)
class Reads:
    """Values that the loops of one root read: ``ends`` in memory or other roots, ``between`` computed on
    demand.

    An index of None means that elements are found only by offset, through a view that is no index map.
    ``shapes``: for each end, the shape in which it is read, and the index in that shape.
    """

    ends: list[tuple[Value, Index | None]] = field(default_factory=list)
    shapes: list[tuple[Shape, Index]] = field(default_factory=list)
    between: list[tuple[Computed, Index]] = field(default_factory=list)
    stopped: list[tuple[Computed, Index]] = field(default_factory=list)
    stop: Stop = lambda value, index: False


@dataclass(eq=False)
class Roots:
    """Roots of a graph, each after those that it reads. ``of``: value -> the root that computes it."""

    graph: Graph
    items: list[Root]
    of: dict[Value, Root]

    def reads(self, root: Root, stop: Stop = lambda value, index: False) -> Reads:
        """Return the values that ``root`` reads. The walk ends at values for which ``stop`` returns True."""
        reads, seen = Reads(stop=stop), set()
        for value, index in root.read():
            walk = self._through if value is root.value and value in self.of else self._walk
            walk(value, index, reads, seen)
        if root.generic:
            inputs = len(root.generic.inputs)
            for number, value in enumerate(root.generic.inits):
                self._walk(value, root.generic.operand_index(inputs + number, root.dims), reads, seen)
        return reads

    def written(self, root: Root) -> list[tuple[Argument, Index]]:
        """Return the arguments in whose memory results of ``root`` are stored, with their indices."""
        places, stores = self.graph.in_place, enumerate(root.stores)
        written = [(n, places[number]) for n, numbers in stores for number in numbers if number in places]
        return [(self.graph.arguments[place], root.result_index(n)) for n, place in written]

    def reads_of(self, read: Iterable[tuple[Value, Index]]) -> Reads:
        """Return the values that are read to compute these elements."""
        reads, seen = Reads(), set()
        for value, index in read:
            self._walk(value, index, reads, seen)
        return reads

    def _walk(self, value: Value, index: Index, reads: Reads, seen: set) -> None:
        if isinstance(value, Splat | Undefined) or (value, index) in seen:
            return
        seen.add((value, index))
        root = self.of.get(value)  # a value is computed, not read, by its own loops at this index
        is_here = root is not None and not root.is_reduction and not root.once and root.dims == index
        if isinstance(value, Argument) or (root is not None and not is_here):
            reads.ends.append((value, index))
            reads.shapes.append((value.shape, index))
        elif isinstance(value, View) and not value.follows:
            if not isinstance(base(value), Splat):
                reads.ends.append((base(value), None))
                reads.shapes.append((value.shape, index))
        else:
            self._through(value, index, reads, seen)

    def _through(self, value: Value, index: Index, reads: Reads, seen: set) -> None:
        if isinstance(value, View | Slice):
            self._walk(value.source, value.source_index(index), reads, seen)
            return
        assert isinstance(value, Computed)
        if reads.stop(value, index):
            reads.stopped.append((value, index))
            return
        reads.between.append((value, index))
        for read, at in value.generic.reads(value.loops_at(index), value.number):
            self._walk(read, at, reads, seen)


def base(value: Value) -> Value:
    """Return the source of a chain of views."""
    while isinstance(value, View):
        value = value.source
    return value


def find_roots(graph: Graph, once: Collection[Value] = ()) -> Roots:
    """Return the roots: reductions, values that views read from memory, and the kernel's results.

    ``once``: more values that have loops of their own.
    """
    alone = frozenset(once)
    found = [*(base(v) for v in graph.views if not v.follows), *once]
    forced = list(dict.fromkeys(v for v in found if isinstance(v, Computed | Slice)))
    roots = Roots(graph, [], {})
    for made_by in [None, *graph.generics]:
        sums = made_by is not None and made_by.is_reduction
        if made_by is not None and sums:
            dims = _dims(roots, made_by.sizes)
            stores = [list[int]() for _ in made_by.inits]
            root = Root(len(roots.items), made_by.sizes, made_by.reduces, None, made_by, stores, dims)
            roots.items.append(root)
        for value in forced:
            if _maker(value) is made_by and not (isinstance(value, Computed) and sums):
                _add(roots, value, [], value in alone)
    for value, root in _owners(graph, roots.items):
        roots.of[value] = root
    for number, value in enumerate(graph.results):
        made = base(value)
        root = roots.of.get(made)
        at = made.number if isinstance(made, Computed) and root and root.generic else 0
        if root and not root.stores[at]:
            root.stores[at].append(number)
        else:
            _add(roots, made if isinstance(made, Computed) else value, [number])  # views of the same memory
    return roots


def _maker(value: Value) -> Generic | None:
    """Return the op that computes ``value``; None for a view of an argument."""
    while isinstance(value, View | Slice):
        value = value.source
    return value.generic if isinstance(value, Computed) else None


def _owners(graph: Graph, items: list[Root]) -> Iterator[tuple[Value, Root]]:
    by_generic = {r.generic: r for r in items if r.generic}
    for value in graph.computed:
        if value.generic in by_generic:
            yield value, by_generic[value.generic]
    for root in items:
        if root.value is not None:
            yield root.value, root


def _add(roots: Roots, value: Value, stores: list[int], once: bool = False) -> None:
    """Add a root that stores ``value`` as these results of the kernel."""
    dims, reduces = _dims(roots, value.shape), (False,) * len(value.shape)
    roots.items.append(Root(len(roots.items), value.shape, reduces, value, None, [stores], dims, once))


def _dims(roots: Roots, sizes: Shape) -> Index:
    """Return the axes of the next root's loops."""
    number = len(roots.items)
    return tuple(Linear.axis((number, d)) if size != 1 else Linear() for d, size in enumerate(sizes))
