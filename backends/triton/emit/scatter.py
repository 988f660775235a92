"""``kern.scatter_add`` as a Triton module, without atomics, so that results are reproducible bit by bit.

Positions are sorted by their row (``torch.sort``, stable). A program takes a run of positions with some
columns, and sums neighbours of the same row by a segmented scan (Blelloch, Prefix sums and their
applications, 1990). Rows that begin and end in the run are added in memory. For a row that continues,
programs write partial sums, which a second function adds in order. So a row with many updates costs no more
than others. Updates that loops of the body compute are computed where they are added.
"""

from __future__ import annotations

from dataclasses import replace

from shardc.backends.body.graph import Argument, Value
from shardc.backends.body.handlers import handles
from shardc.backends.body.linear import Axis, Linear
from shardc.backends.body.structured import Structured, scatter_in_place
from shardc.backends.triton.config import power_of_two
from shardc.backends.triton.emit.code import Code, Scope
from shardc.backends.triton.emit.element import Elements
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.emit.memory import Memory, Pointer, pointer
from shardc.backends.triton.emit.module import Module, Part
from shardc.backends.triton.emit.names import Said
from shardc.backends.triton.emit.text import VALUES, Expr, Names, factor_text, size_text
from shardc.cost.kernel import stream_s
from shardc.cost.machine import Gpu
from shardc.dialects.kern.scatter_add import ScatterAddOp, scatter_add_of
from shardc.dialects.kern.size import AnySize, Size, hint
from shardc.dialects.kern.types import ELEMENTS
from shardc.runtime.kernels.kernel_call import FINE

RUN, COLUMNS, INDICES = 32, 128, 1024
"""Maximum positions and columns of a program, and number of indices of a program that only reads indices."""
_SUMS = {"f16": "f32", "bf16": "f32"}
_TAKEN = [
    "at",
    "after",
    "before",
    "blocks",
    "column",
    "first",
    "inside",
    "outer",
    "position",
    "row",
    "row_before",
    "run",
    "stride",
]
"""Names of the function that adds updates, beside those of its memory."""
_SORT = "torch.sort(rows, stable=True, out=(sorted_rows, order))"
_ADD = '''@triton.jit
def add_within(total, begins, term, begins_here):
    """Joins two spans of positions: the sum begins anew where a row begins."""
    return tl.where(begins_here != 0, term, total + term), begins | begins_here'''


@handles(ScatterAddOp)
def emit_scatter(body: Structured, said: Said, target: Gpu, *, tf32: bool = False) -> Emitted:
    """Return the module of a kernel. ``tf32`` has no effect. Raises KernelNotSupported."""
    return _Scatter(body, said, target).emit()


class _Scatter:
    def __init__(self, body: Structured, said: Said, target: Gpu) -> None:
        spec, in_place = scatter_add_of(body.op, body.shapes), scatter_in_place(body)
        self.name, self.spec, self.checks, self.target = said.name, spec, len(body.results) > 1, target
        self.element = ELEMENTS[spec.out.dtype]
        self.sum = _SUMS.get(self.element, self.element)
        self.columns = body.config.get("columns", min(COLUMNS, power_of_two(hint(spec.inner))))
        self.run = body.config.get("rows", RUN)
        self.graph = body.graph
        self.memory = self._memory(in_place, said, [f"n{s.number}" for s in body.symbols])
        self.module = Module(self.name, said.title, self.memory)
        self.copies = spec.has_init and not in_place
        self.constants = {"RUN": self.run, "COLUMNS": self.columns}
        runs, columns = -(-hint(spec.count) // self.run), -(-hint(spec.inner) // self.columns)
        self.programs = runs * hint(spec.outer) * columns

    def _memory(self, in_place: bool, said: Said, sizes: list[str]) -> Memory:
        spec, names = self.spec, Names(["rows", "sorted_rows", "order", "parts", "out", "wrong"])
        roles = ("index", "updates", "out" if in_place else "init")
        read = zip(self.graph.results, roles, strict=False)
        role_of = {value.position: role for value, role in read if isinstance(value, Argument)}
        types = {a.position: a.element for a in self.graph.arguments}
        given = [
            pointer(role_of.get(n) or names.new(name), types[n]) for n, name in enumerate(said.arguments)
        ]
        made = [pointer("out", self.element)] * (not in_place) + [pointer("wrong", "i64")] * self.checks
        of: dict[Value, Pointer] = {a: given[a.position] for a in self.graph.arguments}
        memory = Memory(given, made, sizes, of=of)
        runs = spec.count + 1 if isinstance(spec.count, Size) else -(-spec.count // self.run)
        memory.work("rows", spec.count, "i32")
        memory.work("sorted_rows", spec.count, "i32")
        memory.work("order", spec.count, "i64")
        memory.work("parts", 2 * runs * spec.outer * spec.inner, self.sum)
        return memory

    def emit(self) -> Emitted:
        module, spec = self.module, self.spec
        module.helpers = [_ADD]
        module.sizes = [
            f"{name} = tl.constexpr({n})" for name, n in self._sizes().items() if not isinstance(n, Size)
        ]
        if self.copies or not spec.has_init:
            module.before = ["out.copy_(init)" if self.copies else "out.zero_()"]
        parts = [self._rows(), *([self._wrong()] if self.checks else []), self._runs(), self._joins()]
        module.parts = [replace(part, lines=self._symbolic(part.lines)) for part in parts]
        module.estimated(0, self.target.matmul_flop_s, self._moved_bytes(), self.target)
        return module.finish("reduction")

    def _sizes(self) -> dict[str, AnySize]:
        spec = self.spec
        return {"COUNT": spec.count, "ROWS": spec.rows, "INNER": spec.inner}

    def _symbolic(self, lines: list[str]) -> list[str]:
        """Return the lines, preceded by those that compute sizes known only at the call."""
        named = [(name, n) for name, n in self._sizes().items() if isinstance(n, Size)]
        used = [f"{name} = {self._text(n)}" for name, n in named if any(name in line for line in lines)]
        return [*used, *lines]

    def _text(self, size: AnySize) -> str:
        return size_text(size, self.memory.sizes)

    # Rows from indices

    def _row(self) -> list[str]:
        """Return the lines that compute the row of ``index``, and whether it is in range."""
        row = "tl.where(index < 0, index + ROWS, index)" if self.spec.wraps else "index"
        return [f"row = {row}", "is_row = (row >= 0) & (row < ROWS)"]

    def _counts(self) -> str:
        return "" if self.spec.ignored is None else f" & (index != {self.spec.ignored})"

    def _rows(self) -> Part:
        lines = [
            "at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
            "index = tl.load(index_ptr + at, mask=at < COUNT, other=0)",
            *self._row(),
            f"row = tl.where(is_row{self._counts()}, row, ROWS).to(tl.int32)",
            "tl.store(rows_ptr + at, row, mask=at < COUNT)",
        ]
        count = hint(self.spec.count)
        seconds = stream_s(12 * count, -(-count // INDICES), 4, self.target)
        seconds += 4 * stream_s(24 * count, 1024, 4, self.target)  # the sort
        says = "The row that each index names; ROWS where it adds nothing."
        grid = f"(triton.cdiv({self._text(self.spec.count)}, BLOCK),)"
        return Part(f"{self.name}_rows", lines, {"BLOCK": INDICES}, grid, 4, says, seconds=seconds)

    def _wrong(self) -> Part:
        lines = [
            f"largest = tl.full([BLOCK], {FINE}, tl.int64)",
            "for start in range(0, COUNT, BLOCK):",
            "    at = start + tl.arange(0, BLOCK)",
            "    index = tl.load(index_ptr + at, mask=at < COUNT, other=0)",
            *(f"    {line}" for line in self._row()),
            f"    is_wrong = (at < COUNT) & (is_row == 0){self._counts()}",
            f"    largest = tl.maximum(largest, tl.where(is_wrong, index.to(tl.int64), {FINE}))",
            "tl.store(wrong_ptr, tl.max(largest, 0))",
        ]
        count, block = hint(self.spec.count), 4 * INDICES
        seconds = stream_s(8 * count, 1, 8, self.target, steps=-(-count // block))
        says = "The largest index that is out of range."
        return Part(f"{self.name}_wrong", lines, {"BLOCK": block}, "(1,)", 8, says, seconds=seconds)

    # Sums

    def _place(self) -> list[str]:
        """Return the lines that compute a program's run of positions, its columns, and its outer index."""
        lines = [
            "blocks = tl.cdiv(INNER, COLUMNS)",
            "column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)",
        ]
        if not self.has_outer:
            return [*lines, "run = tl.program_id(0) // blocks", "stride = INNER"]
        outer = factor_text(self.spec.outer, self.memory.sizes)
        return [
            *lines,
            f"outer = (tl.program_id(0) // blocks % {outer}).to(tl.int64)",
            f"run = tl.program_id(0) // (blocks * {outer})",
            f"stride = INNER * {outer}",
        ]

    @property
    def has_outer(self) -> bool:
        """True if out has dims before the one of the rows."""
        return isinstance(self.spec.outer, Size) or self.spec.outer != 1

    def _at(self, size: str, row: str) -> str:
        """Return the offset of a row of a tensor with ``size`` rows."""
        return f"(outer * {size} + {row}) * INNER" if self.has_outer else f"{row} * INNER"

    @property
    def _first(self) -> str:
        """Start of a run's partial sums."""
        return "outer * INNER + " if self.has_outer else ""

    def _added(self, at: str, total: str) -> str:
        """Return a row's sum, added to its initial value."""
        if not self.spec.has_init:
            return f"{total}.to({VALUES[self.element]})"
        start = f"tl.load({at}, mask=inside, other=0)"
        wide = f"{start}.to({VALUES[self.sum]})" if self.sum != self.element else start
        return f"({wide} + {total}).to({VALUES[self.element]})"

    def _grid(self) -> str:
        outer, inner, count = (self._text(n) for n in (self.spec.outer, self.spec.inner, self.spec.count))
        before = f"({outer}) * " if self.has_outer else ""
        return f"({before}triton.cdiv({count}, RUN) * triton.cdiv({inner}, COLUMNS),)"

    def _runs(self) -> Part:
        term, loads = self._term()
        lines = [
            *self._place(),
            "first = run * RUN",
            "at = first + tl.arange(0, RUN)",
            "row = tl.load(sorted_rows_ptr + at, mask=at < COUNT, other=ROWS)",
            "before = tl.load(sorted_rows_ptr + at - 1, mask=(at > 0) & (at < COUNT), other=-1)",
            "after = tl.load(sorted_rows_ptr + at + 1, mask=at + 1 < COUNT, other=-1)",
            "row_before = tl.load(sorted_rows_ptr + first - 1, mask=first > 0, other=-1)",
            "position = tl.load(order_ptr + at, mask=at < COUNT, other=0)",
            "is_used = (row < ROWS)[:, None] & (column < INNER)[None, :]",
            *loads,
            f"term = {term}.to({VALUES[self.sum]})",
            "begins = tl.broadcast_to((row != before)[:, None].to(tl.int32), [RUN, COLUMNS])",
            "total, _ = tl.associative_scan((term, begins), 0, add_within)",
            "# Rows that begin and end in this run",
            "ends, is_whole = row != after, row != row_before",
            "inside = is_used & (ends & is_whole)[:, None]",
            f"into = out_ptr + {self._at('ROWS', 'row[:, None].to(tl.int64)')} + column[None, :]",
            f"tl.store(into, {self._added('into', 'total')}, mask=inside)",
            "# The end of one that began before, and the beginning of one that goes on",
            "is_end = (ends | (at == first + RUN - 1)) & (is_whole == 0)",
            "is_begin = (at == first + RUN - 1) & (ends == 0) & is_whole",
            f"part = parts_ptr + {self._first}(2 * run + is_begin.to(tl.int64)[:, None]) * stride + "
            f"column[None, :]",
            "tl.store(part, total, mask=is_used & (is_end | is_begin)[:, None])",
        ]
        spec = self.spec
        warps = max(1, min(8, self.run * self.columns // (16 * self.target.warp_size)))
        named = hint(spec.updates.size_bytes) * (3 if spec.has_init else 2)
        seconds = stream_s(named, self.programs, warps, self.target)
        if self.module.before and (filled := hint(spec.out.size_bytes) * (2 if self.copies else 1)):
            seconds += stream_s(filled, 1024, 4, self.target)
        says = "A program: RUN positions in the order of their rows, and COLUMNS columns."
        grid, warps = self._grid(), power_of_two(warps)
        return Part(self.name, lines, self.constants, grid, warps, says, seconds=seconds, before=(_SORT,))

    def _term(self) -> tuple[str, list[str]]:
        """Return the text of the updates of a run's positions and columns, and the lines before it."""
        updates = self.graph.results[1]
        if isinstance(updates, Argument):
            at = f"update = {self._at('COUNT', 'position[:, None]')} + column[None, :]"
            return "tl.load(updates_ptr + update, mask=is_used, other=0)", [at]
        taken = [*self.memory.sizes, *(p.name for p in self.memory.pointers), *_TAKEN]
        code = Code(Names(taken), [Scope(frozenset(("outer", "position", "column")))])
        elements = Elements(code, self.memory, self.graph.sizes, "tl.int64")
        elements.masks = {"position": "(row < ROWS)[:, None]", "column": "(column < INNER)[None, :]"}
        before, count = self.spec.dim, len(self.spec.index.shape)
        groups = (
            ("outer", "outer", range(before)),
            ("position", "position[:, None]", range(before, before + count)),
            ("column", "column[None, :]", range(before + count, len(updates.shape))),
        )
        place = [Linear()] * len(updates.shape)
        for tag, text, dims in groups:
            stride = 1
            for dim in (d for d in reversed(dims) if updates.shape[d] != 1):
                size = updates.shape[dim]
                part = f"{text} // {stride}" if stride != 1 else text
                alone = all(updates.shape[d] == 1 for d in dims if d != dim)
                axis: Axis = ("update", dim)
                whole = Expr(part if alone else f"{part} % {size}", "index", frozenset((tag,)), atom=False)
                elements.axes[axis] = code.name("at", whole) if not alone else whole
                place[dim], stride = Linear.axis(axis), stride * int(size)
        made = elements.element(updates, tuple(place))
        return str(made), code.text

    def _joins(self) -> Part:
        lines = [
            *self._place(),
            "row_before = tl.load(sorted_rows_ptr + run * RUN - 1, mask=run > 0, other=-1)",
            "last = run * RUN + RUN - 1",
            "row = tl.load(sorted_rows_ptr + last, mask=last < COUNT, other=ROWS)",
            "after = tl.load(sorted_rows_ptr + last + 1, mask=last + 1 < COUNT, other=ROWS)",
            "goes_on = (row == after) & (row != row_before) & (row < ROWS)",
            "inside = (column < INNER) & goes_on",
            f"part = parts_ptr + {self._first}column",
            "total = tl.load(part + (2 * run + 1).to(tl.int64) * stride, mask=inside, other=0)",
            "later = run + 1",
            "while goes_on & (tl.load(sorted_rows_ptr + later * RUN, mask=later * RUN < COUNT, other=ROWS) "
            "== row):",
            "    total += tl.load(part + (2 * later).to(tl.int64) * stride, mask=inside, other=0)",
            "    later += 1",
            f"into = out_ptr + {self._at('ROWS', 'row.to(tl.int64)')} + column",
            f"tl.store(into, {self._added('into', 'total')}, mask=inside)",
        ]
        says = "A program: the row that begins in one run and goes on in the next ones, added up in order."
        moved = hint(self.spec.updates.size_bytes) // self.run
        seconds = stream_s(moved, self.programs, 1, self.target, steps=2)
        return Part(f"{self.name}_join", lines, self.constants, self._grid(), 1, says, seconds=seconds)

    def _moved_bytes(self) -> int:
        """Return the bytes of indices, updates and updated rows, or of all rows if out is initialised."""
        spec = self.spec
        named = min(hint(spec.updates.size_bytes), hint(spec.out.size_bytes)) * (2 if spec.has_init else 1)
        whole = hint(spec.out.size_bytes) * (2 if self.copies else 1)
        is_there = spec.has_init and not self.copies
        return hint(spec.index.size_bytes) + hint(spec.updates.size_bytes) + (named if is_there else whole)
