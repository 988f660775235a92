"""One ``@triton.jit`` function: the tile of a program, the loops of a row inside of it, the stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from shardc.backends.body.graph import Computed, Generic
from shardc.backends.body.linear import Axis, row_major
from shardc.backends.body.roots import Root
from shardc.backends.triton.config import Tile
from shardc.backends.triton.emit import flat
from shardc.backends.triton.emit.code import Code
from shardc.backends.triton.emit.element import Elements
from shardc.backends.triton.emit.memory import Memory, Pointer
from shardc.backends.triton.emit.nests import Function
from shardc.backends.triton.emit.reduce import Joins, result_name
from shardc.backends.triton.emit.text import VALUES, Expr, attribute, size_text
from shardc.dialects.kern.size import AnySize

Key = tuple[Root, int]
"""A result of a root."""
ROW, COLUMNS = "row", "BLOCK_COLUMNS"


@dataclass(eq=False)
class Space:
    """The elements of a row in one order: ``axes``, the slowest first. ``tag`` names the index along it."""

    axes: tuple[Axis, ...]
    total: AnySize
    tag: str
    looped: bool


@dataclass(eq=False)
class Writer:
    """Writes the body of ``function`` into ``code``. ``targets``: the memory of results; ``partials``: that
    of a carried result's part of each program, where there are several programs.
    """

    function: Function
    tile: Tile
    spaces: list[Space]
    code: Code
    elements: Elements
    memory: Memory
    joins: Joins
    targets: dict[Key, Pointer]
    partials: dict[Key, Pointer]
    computed: dict[tuple[Generic, int], Computed]
    any_size: bool = False
    """Whether the function is for any number of elements."""
    sums: dict[Key, str] = field(default_factory=dict)

    @property
    def is_carried(self) -> bool:
        return any(self.function.carried(r) for r in self.function.roots)

    def write(self) -> None:
        """All of the body."""
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
        """Programs that take rows in turn, and add up what they see of each column."""
        for space in self.spaces:
            self._column(space, "tl.program_id(1)")
        for root in self.function.roots:
            if self.function.carried(root):
                for n in range(root.result_count()):
                    self._open(root, n, result_name(root.combiners[n]))
        count = self._text(self._row_count())
        blocks = f"tl.cdiv({count}, BLOCK_ROWS)"
        if self.tile.programs == 1:
            head = f"for block in range(0, {blocks}):"
        else:
            head = f"for block in range(tl.program_id(0), {blocks}, PROGRAMS):"
        with self.code.block(head):
            self._row("block")
            self._stages()
        for root, n in list(self.sums):
            if self.function.carried(root):
                self._close_carried(root, n)

    def _row_count(self) -> AnySize:
        return prod(self.function.sizes[a] for a in self.function.rows)

    def _text(self, size: AnySize) -> str:
        return size_text(size, self.memory.sizes)

    def _row(self, block: str) -> None:
        """The rows of this program, and their mask."""
        if self.any_size:
            self.code.add_index(ROW)
            for line in flat.HEAD:
                self.code.line(line)
            self.elements.masks[ROW], self.elements.once = "index_mask", "program == 0"
            self._place(self.function.rows[0], Expr("index", "index", frozenset({ROW})))
            return
        count, flat_tile = self._row_count(), not self.spaces
        step, name = ("BLOCK", "index") if flat_tile and not self.is_carried else ("BLOCK_ROWS", "row")
        if self.elements.index_type == "tl.int64":
            block = f"tl.cast({block}, tl.int64)"
        lanes = f"tl.arange(0, {step}){'' if flat_tile else '[:, None]'}"
        row = self._index(name, f"{block} * {step} + {lanes}", ROW, count, step)
        self._axes(row, self.function.rows)

    def _column(self, space: Space, block: str) -> None:
        """The elements of a row that this program has, and their mask."""
        step = COLUMNS
        whole = block and not self.is_whole(space)
        start = f"{block} * {step} + " if whole else ""
        column = self._index(space.tag, f"{start}tl.arange(0, {step})[None, :]", space.tag, space.total, step)
        self._axes(column, space.axes)

    def is_whole(self, space: Space) -> bool:
        """Whether a tile has all elements of a row."""
        return isinstance(space.total, int) and space.total <= self.tile.columns

    def _index(self, name: str, text: str, tag: str, total: AnySize, step: str) -> Expr:
        self.code.add_index(tag)
        tags = frozenset({tag})
        index = self.code.name(name, Expr(text, "index", tags))
        size = self._block_size(tag)
        if not isinstance(total, int) or total == 0 or total % size:  # of no elements, none may be read
            mask = Expr(f"{index} < {self._text(total)}", "i1", tags)
            self.elements.masks[tag] = self.code.name(f"{name}_mask", mask).text
        else:
            self.elements.masks[tag] = ""
        return index

    def _block_size(self, tag: str) -> int:
        if tag != ROW:
            return self.tile.columns
        return self.tile.columns if not self.spaces and not self.is_carried else self.tile.rows

    def _axes(self, index: Expr, axes: list[Axis] | tuple[Axis, ...]) -> None:
        """Where each of ``axes`` stands at the flattened ``index``."""
        if len(axes) == 1:
            self._place(axes[0], index)
            return
        below: AnySize = 1
        for at, axis in reversed(list(enumerate(axes))):
            size = self.function.sizes[axis]
            text = index.text if below == 1 else f"{index.text} // {self._divisor(below)}"
            text = f"{text} % {self._divisor(size)}" if at else text
            self._place(
                axis, self.code.name(f"{index.text}_{at}", Expr(text, "index", index.vary, atom=False))
            )
            below = below * size

    def _divisor(self, size: AnySize) -> str:
        return str(size) if isinstance(size, int) else f"({self._text(size)})"

    def _place(self, axis: Axis, value: Expr) -> None:
        """Along a row, an axis stands somewhere else in each order of the row's elements."""
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
        """A pass over a row that is too long to be held."""
        keys = [(r, n) for r in roots if r.is_reduction for n in range(r.result_count())]
        for root, n in keys:
            self._open(root, n, result_name(root.combiners[n]))
        start = self.code.names.new("start")
        head = f"for {start} in range(0, {self._text(space.total)}, {COLUMNS}):"
        with self.code.block(head):
            text = f"{start} + tl.arange(0, {COLUMNS})[None, :]"
            column = self._index(space.tag, text, space.tag, space.total, COLUMNS)
            self._axes(column, space.axes)
            self._step(roots, space)
        for root, n in keys:
            total = self.joins.along(root.combiners[n], self.sums.pop((root, n)), 1)
            self._close(root, n, total)

    def _open(self, root: Root, n: int, name: str) -> None:
        """The accumulators of a result, one for each place of the tile."""
        identity = attribute(root.combiners[n].identity)
        self.sums[root, n] = self.code.names.new(f"{name}_acc")
        shape = f"[{', '.join(self._shape(root))}]"
        self.code.line(f"{self.sums[root, n]} = tl.full({shape}, {identity.text}, {VALUES[identity.type]})")

    def _shape(self, root: Root) -> list[str]:
        """Of the tile in which a root's terms are made."""
        if not self.spaces:
            return ["BLOCK_ROWS"]
        axes = tuple(self.function.inner(root))
        return ["BLOCK_ROWS", COLUMNS if any(s.axes == axes for s in self.spaces) else "1"]

    def _step(self, roots: list[Root], space: Space | None) -> None:
        """Compute what one place of a row needs; all values before a store, which may overwrite inputs."""
        stored = [r for r in roots if not r.is_reduction and self.targets.get((r, 0))]
        values = [self.elements.element(r.value, r.dims) for r in stored]
        for root in roots:
            if root.is_reduction:
                for n in range(root.result_count()):
                    self._reduce(root, n, space)
        for root, value in zip(stored, values, strict=True):
            self._store(root, 0, value)

    def _store(self, root: Root, n: int, value: Expr) -> None:
        target = self.targets[root, n]
        at = self.elements.position(row_major(root.result_index(n), root.result_shape(n)))
        self.elements.store(target.name, at, value)

    def _reduce(self, root: Root, n: int, space: Space | None) -> None:
        combiner, carried = root.combiners[n], self.function.carried(root)
        term = self.elements.term(root.generic, n, root.dims)
        tags = ([ROW] if carried else []) + ([space.tag] if space else [])
        mask = self.elements.mask(frozenset(tags))
        identity = attribute(combiner.identity)
        if mask:
            text = f"tl.where({mask}, {term.text}, {identity.text})"
            term = self.code.name("term", Expr(text, term.type, term.vary | frozenset(tags)))
        if (root, n) in self.sums:
            self.code.line(
                f"{self.sums[root, n]} = {self.joins.two(combiner, self.sums[root, n], str(term))}"
            )
            return
        if not mask and not term.vary >= frozenset(tags):
            term = Expr(
                f"tl.broadcast_to({term.text}, [{', '.join(self._shape(root))}])", term.type, frozenset(tags)
            )
        self._close(root, n, self.joins.along(combiner, term.text, 1))

    def _close(self, root: Root, n: int, total: str) -> None:
        """A row's result: known from here on, and stored if it has memory."""
        combiner, index = root.combiners[n], root.result_index(n)
        start = self.elements.element(root.generic.inits[n], index)
        element = str(root.generic.inits[n].element)
        text = self.joins.from_start(combiner, start, total)
        value = self.code.name(
            result_name(combiner), Expr(text, element, frozenset({ROW} if self.function.rows else ()))
        )
        self.elements.remember(self.computed[root.generic, n], index, value)
        if self.targets.get((root, n)):
            self._store(root, n, value)

    def _close_carried(self, root: Root, n: int) -> None:
        combiner, text = root.combiners[n], self.sums[root, n]
        inner = self.function.inner(root)
        space = next((s for s in self.spaces if s.axes == tuple(inner)), None)
        summed = not inner or set(inner) <= root.reduced
        if summed and self.spaces:
            text = self.joins.along(combiner, text, 1, keep=False)
        text = self.joins.along(combiner, text, 0, keep=not summed)
        vary = frozenset() if summed else frozenset({space.tag})
        element = str(root.generic.inits[n].element)
        with self._along(None if summed else space):
            at = self.elements.position(row_major(root.result_index(n), root.result_shape(n)))
            if (root, n) not in self.partials:
                start = self.elements.element(root.generic.inits[n], root.result_index(n))
                total = self.code.name(
                    result_name(combiner), Expr(self.joins.from_start(combiner, start, text), element, vary)
                )
                self.elements.store(self.targets[root, n].name, at, total)
                return
            total = self.code.name(result_name(combiner), Expr(text, element, vary))
            count = self._text(prod(root.result_shape(n)))
            part = "tl.program_id(0)" if count == "1" else f"tl.program_id(0) * ({count})"
            place = part if at.literal == 0 else f"{part} + {at}"
            self.elements.store(self.partials[root, n].name, Expr(place, "index", at.vary), total)


def spaces_of(function: Function, tile_columns: int, carried: bool) -> list[Space]:
    """The orders of a row's elements; one longer than a tile is a loop, unless programs share the rows."""
    found = []
    for number, axes in enumerate(function.spaces()):
        total = prod(function.sizes[a] for a in axes)
        whole = isinstance(total, int) and total <= tile_columns
        found.append(
            Space(axes, total, "column" if not number else f"column_{number + 1}", not whole and not carried)
        )
    return found
