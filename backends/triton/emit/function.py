"""Writer of one ``@triton.jit`` function: a program's tile, the loops of a row inside it, the stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from shardc.backends.body.graph import Computed, Generic
from shardc.backends.body.linear import Axis, row_major
from shardc.backends.body.roots import Root
from shardc.backends.triton.config import Tile
from shardc.backends.triton.emit import flat
from shardc.backends.triton.emit.code import Code
from shardc.backends.triton.emit.element import Elements
from shardc.backends.triton.emit.memory import Pointer
from shardc.backends.triton.emit.nests import Function
from shardc.backends.triton.emit.reduce import Joins, combiner_of, init_of, result_name
from shardc.backends.triton.emit.text import VALUES, Expr, attribute, size_text
from shardc.dialects.kern.size import AnySize

Key = tuple[Root, int]
"""Result of a root: the root, and the result's number."""
ROW, COLUMNS = "row", "BLOCK_COLUMNS"


@dataclass(eq=False)
class Space:
    """Elements of a row in one order: ``axes``, the slowest first. ``tag``: name of the index along it."""

    axes: tuple[Axis, ...]
    total: AnySize
    tag: str
    looped: bool


@dataclass(eq=False)
class FunctionWriter:
    """Writer of the body of ``function`` into the code of ``elements``.

    ``targets``: memory of results. ``partials``: memory of carried results' parts of each program, if there
    are several. ``any_size``: the function is for any number of elements.
    """

    function: Function
    tile: Tile
    elements: Elements
    joins: Joins
    targets: dict[Key, Pointer]
    partials: dict[Key, Pointer]
    computed: dict[tuple[Generic, int], Computed]
    any_size: bool = False
    sums: dict[Key, str] = field(default_factory=dict)

    @property
    def code(self) -> Code:
        return self.elements.code

    @cached_property
    def is_carried(self) -> bool:
        return any(self.function.carried(r) for r in self.function.roots)

    @cached_property
    def spaces(self) -> list[Space]:
        """Return the orders of a row's elements. One longer than a tile is a loop, unless rows are shared."""
        found = []
        for number, axes in enumerate(self.function.spaces()):
            total = prod(self.function.sizes[a] for a in axes)
            tag = f"column_{number + 1}" if number else "column"
            found.append(Space(axes, total, tag, not self.is_whole(total) and not self.is_carried))
        return found

    @cached_property
    def row_count(self) -> AnySize:
        return prod(self.function.sizes[a] for a in self.function.rows)

    def text(self, size: AnySize) -> str:
        return size_text(size, self.elements.memory.sizes)

    def is_whole(self, total: AnySize) -> bool:
        """Return True if a tile has all elements of a row."""
        return isinstance(total, int) and total <= self.tile.columns

    def write(self) -> None:
        """Write the whole body."""
        if not self.function.order:
            self._stages()
        elif self.is_carried:
            self._carried()
        else:
            self._row("tl.program_id(0)")
            for space in self.spaces:
                if not space.looped:
                    self._column(space, "")
            self._stages()

    def _carried(self) -> None:
        """Write programs that take rows round-robin, and sum each column over them."""
        for space in self.spaces:
            self._column(space, "tl.program_id(1)")
        roots = [r for r in self.function.roots if self.function.carried(r)]
        carried = [(r, n) for r in roots for n in range(r.result_count())]
        for key in carried:
            self._open(*key)
        blocks = f"tl.cdiv({self.text(self.row_count)}, BLOCK_ROWS)"
        span = f"0, {blocks}" if self.tile.programs == 1 else f"tl.program_id(0), {blocks}, PROGRAMS"
        stages = self.tile.stages
        loop = f"range({span})" if stages == 1 else f"tl.range({span}, num_stages={stages})"
        with self.code.block(f"for block in {loop}:"):
            self._row("block")
            self._stages()
        for key in carried:
            self._close_carried(*key)

    def _row(self, block: str) -> None:
        """Write the rows of this program, and their mask."""
        if self.any_size:
            self.code.add_index(ROW)
            for line in flat.HEAD:
                self.code.line(line)
            self.elements.masks[ROW], self.elements.once = "index_mask", "program == 0"
            self._place(self.function.rows[0], Expr("index", "index", frozenset({ROW})))
            return
        flat_tile = not self.spaces
        step, name = ("BLOCK", "index") if flat_tile and not self.is_carried else ("BLOCK_ROWS", "row")
        if self.elements.index_type == "tl.int64":
            block = f"tl.cast({block}, tl.int64)"
        lanes = f"tl.arange(0, {step}){'' if flat_tile else '[:, None]'}"
        row = self._index(name, f"{block} * {step} + {lanes}", ROW, self.row_count)
        self._axes(row, self.function.rows)

    def _column(self, space: Space, block: str) -> None:
        """Write this program's elements of a row, and their mask."""
        start = f"{block} * {COLUMNS} + " if block and not self.is_whole(space.total) else ""
        self._columns(space, f"{start}tl.arange(0, {COLUMNS})[None, :]")

    def _columns(self, space: Space, text: str) -> None:
        self._axes(self._index(space.tag, text, space.tag, space.total), space.axes)

    def _index(self, name: str, text: str, tag: str, total: AnySize) -> Expr:
        self.code.add_index(tag)
        tags = frozenset({tag})
        index = self.code.name(name, Expr(text, "index", tags))
        self.elements.masks[tag] = ""
        by_rows = tag == ROW and (self.spaces or self.is_carried)
        size = self.tile.rows if by_rows else self.tile.columns
        if not isinstance(total, int) or total == 0 or total % size:  # an empty tensor must not be read
            mask = Expr(f"{index} < {self.text(total)}", "i1", tags)
            self.elements.masks[tag] = self.code.name(f"{name}_mask", mask).text
        return index

    def _axes(self, index: Expr, axes: Sequence[Axis]) -> None:
        """Compute the position on each of ``axes`` at the flattened ``index``."""
        if len(axes) == 1:
            self._place(axes[0], index)
            return
        below: AnySize = 1
        for at, axis in reversed(list(enumerate(axes))):
            size = self.function.sizes[axis]
            text = index.text if below == 1 else f"{index.text} // {self._divisor(below)}"
            text = f"{text} % {self._divisor(size)}" if at else text
            place = Expr(text, "index", index.vary, atom=False)
            self._place(axis, self.code.name(f"{index.text}_{at}", place))
            below = below * size

    def _divisor(self, size: AnySize) -> str:
        return str(size) if isinstance(size, int) else f"({self.text(size)})"

    def _place(self, axis: Axis, value: Expr) -> None:
        """Record an axis's position. Along a row it differs for each order of the row's elements."""
        (tag,) = value.vary
        if tag == ROW:
            self.elements.axes[axis] = value
        else:
            self.code.remember(("axis", axis, tag), value)

    def _stages(self) -> None:
        for stage in self.function.stages:
            for axes in dict.fromkeys(tuple(self.function.inner(r)) for r in stage):
                roots = [r for r in stage if tuple(self.function.inner(r)) == axes]
                space = next((s for s in self.spaces if s.axes == axes), None)
                with self._along(space):
                    if space is not None and space.looped:
                        self._loop(roots, space)
                    else:
                        self._step(roots, space)

    @contextmanager
    def _along(self, space: Space | None) -> Iterator[None]:
        before, self.elements.space = self.elements.space, space and space.tag
        yield
        self.elements.space = before

    def _loop(self, roots: list[Root], space: Space) -> None:
        """Write a loop over a row that is too long for a tile."""
        keys = [(r, n) for r in roots if r.is_reduction for n in range(r.result_count())]
        for root, n in keys:
            self._open(root, n)
        start = self.code.names.new("start")
        with self.code.block(f"for {start} in range(0, {self.text(space.total)}, {COLUMNS}):"):
            self._columns(space, f"{start} + tl.arange(0, {COLUMNS})[None, :]")
            self._step(roots, space)
        for root, n in keys:
            total = self.joins.along(combiner_of(root, n), self.sums.pop((root, n)), 1)
            self._close(root, n, total)

    def _open(self, root: Root, n: int) -> None:
        """Write a result's accumulators, one for each element of the tile."""
        combiner = combiner_of(root, n)
        identity = attribute(combiner.identity)
        self.sums[root, n] = self.code.names.new(f"{result_name(combiner)}_acc")
        shape = f"[{', '.join(self._shape(root))}]"
        self.code.line(f"{self.sums[root, n]} = tl.full({shape}, {identity.text}, {VALUES[identity.type]})")

    def _shape(self, root: Root) -> list[str]:
        """Return the shape of the tile in which a root's terms are computed."""
        if not self.spaces:
            return ["BLOCK_ROWS"]
        axes = tuple(self.function.inner(root))
        return ["BLOCK_ROWS", COLUMNS if any(s.axes == axes for s in self.spaces) else "1"]

    def _step(self, roots: list[Root], space: Space | None) -> None:
        """Compute one step of a row: all values before any store, which may overwrite inputs."""
        stored = [(r, r.value) for r in roots if r.value is not None and (r, 0) in self.targets]
        values = [(r, self.elements.element(value, r.dims)) for r, value in stored]
        for root in roots:
            if root.generic is not None:
                for n in range(root.result_count()):
                    self._reduce(root, root.generic, n, space)
        for root, value in values:
            self._store(root, 0, value)

    def _store(self, root: Root, n: int, value: Expr) -> None:
        target = self.targets[root, n]
        at = self.elements.position(row_major(root.result_index(n), root.result_shape(n)))
        self.elements.store(target.name, at, value)

    def _reduce(self, root: Root, generic: Generic, n: int, space: Space | None) -> None:
        combiner, term = combiner_of(root, n), self.elements.term(generic, n, root.dims)
        tags = frozenset([ROW] * self.function.carried(root) + [s.tag for s in [space] if s is not None])
        mask = self.elements.mask(tags)
        if mask:
            text = f"tl.where({mask}, {term.text}, {attribute(combiner.identity).text})"
            term = self.code.name("term", Expr(text, term.type, term.vary | tags))
        if (total := self.sums.get((root, n))) is not None:
            self.code.line(f"{total} = {self.joins.two(combiner, total, str(term))}")
            return
        text = term.text
        if not mask and not term.vary >= tags:
            text = f"tl.broadcast_to({text}, [{', '.join(self._shape(root))}])"
        self._close(root, n, self.joins.along(combiner, text, 1))

    def _close(self, root: Root, n: int, total: str) -> None:
        """Write a row's result, which is known from here on, and its store if it has memory."""
        assert root.generic is not None
        index, vary = root.result_index(n), frozenset({ROW} if self.function.rows else ())
        value = self._result(root, n, total, vary)
        self.elements.remember(self.computed[root.generic, n], index, value)
        if (root, n) in self.targets:
            self._store(root, n, value)

    def _result(self, root: Root, n: int, total: str, vary: frozenset[str]) -> Expr:
        """Combine a sum of terms with the result's initial value."""
        combiner, init = combiner_of(root, n), init_of(root, n)
        text = self.joins.from_start(combiner, self.elements.element(init, root.result_index(n)), total)
        return self.code.name(result_name(combiner), Expr(text, str(init.element), vary))

    def _close_carried(self, root: Root, n: int) -> None:
        combiner, text = combiner_of(root, n), self.sums[root, n]
        inner = self.function.inner(root)
        space = next((s for s in self.spaces if s.axes == tuple(inner)), None)
        summed = not inner or set(inner) <= root.reduced
        if summed and self.spaces:
            text = self.joins.along(combiner, text, 1, keep=False)
        text = self.joins.along(combiner, text, 0, keep=not summed)
        vary = frozenset() if summed or space is None else frozenset({space.tag})
        with self._along(None if summed else space):
            at = self.elements.position(row_major(root.result_index(n), root.result_shape(n)))
            if (root, n) not in self.partials:
                self.elements.store(self.targets[root, n].name, at, self._result(root, n, text, vary))
                return
            element = str(init_of(root, n).element)
            total = self.code.name(result_name(combiner), Expr(text, element, vary))
            count = self.text(prod(root.result_shape(n)))
            part = "tl.program_id(0)" if count == "1" else f"tl.program_id(0) * ({count})"
            place = part if at.literal == 0 else f"{part} + {at}"
            self.elements.store(self.partials[root, n].name, Expr(place, "index", at.vary), total)
