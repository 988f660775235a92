"""``emit_kernel``: a ``kern.kernel`` as one readable Triton module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir

from shardc.backends.body.axes import join_axes
from shardc.backends.body.contraction import find_contraction
from shardc.backends.body.extract import extract_kernels
from shardc.backends.body.graph import Argument, Graph
from shardc.backends.body.nest import Nest, check_in_place, recursion
from shardc.backends.body.read_graph import read_graph
from shardc.backends.body.roots import Reads, Root, Roots, base, find_roots
from shardc.backends.body.structured import read_structured
from shardc.backends.triton.attention.kernel import emit_attention
from shardc.backends.triton.config import (
    Extent,
    Limits,
    Tile,
    limits_of,
    power_of_two,
    tile_of,
)
from shardc.backends.triton.emit.code import Code
from shardc.backends.triton.emit.element import Elements
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.emit.function import ROW, Key, Writer, spaces_of
from shardc.backends.triton.emit.memory import Memory, Pointer, memory_of
from shardc.backends.triton.emit.module import Module, Part
from shardc.backends.triton.emit.names import Said, said_of, said_of_function
from shardc.backends.triton.emit.nests import Function, find_functions, with_scalars
from shardc.backends.triton.emit.reduce import Joins, result_name
from shardc.backends.triton.emit.scatter import emit_scatter
from shardc.backends.triton.emit.text import Expr, Names, size_text
from shardc.backends.triton.emit.traffic import element_bytes, read_bytes, written_bytes
from shardc.backends.triton.losses.cross_entropy_kernel import emit_cross_entropy
from shardc.backends.triton.matmul.contraction import Matmul
from shardc.backends.triton.matmul.grouped_matmul import emit_grouped_matmul
from shardc.backends.triton.matmul.kernel import add_matmul, matmul_nest, waits
from shardc.cost.kernel import stream_s
from shardc.cost.machine import Gpu
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.dialects.kern.attention import AttentionOp
from shardc.dialects.kern.attention_backward import AttentionBackwardOp
from shardc.dialects.kern.grouped_matmul import GroupedMatmulOp
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropyOp
from shardc.dialects.kern.linear_cross_entropy_backward import LinearCrossEntropyBackwardOp
from shardc.dialects.kern.scatter_add import ScatterAddOp
from shardc.dialects.kern.size import hint, symbols_of

STRUCTURED: dict[str, Callable[..., Emitted]] = {
    AttentionOp.OPERATION_NAME: emit_attention,
    AttentionBackwardOp.OPERATION_NAME: emit_attention,
    GroupedMatmulOp.OPERATION_NAME: emit_grouped_matmul,
    LinearCrossEntropyOp.OPERATION_NAME: emit_cross_entropy,
    LinearCrossEntropyBackwardOp.OPERATION_NAME: emit_cross_entropy,
    ScatterAddOp.OPERATION_NAME: emit_scatter,
}
"""What writes a kernel that is one op of ``kern``."""
INT32 = (1 << 31) - (1 << 17)
"""Indices from here on take 64 bits: a tile may reach beyond the last element."""


def emit_kernel(kernel: ir.Operation, target: Gpu, *, tf32: bool = False) -> Emitted:
    """The module of ``kernel`` with tiles for ``target``, chosen where ``#kern.config`` says none.

    ``tf32``: torch allows it in products of f32. Raises TritonKernelNotSupported, KernelNotSupported.
    """
    functions = extract_kernels([kernel])
    (function,) = functions.body
    return emit_function(function.operation, said_of(kernel), target, tf32=tf32)


def emit_function(function: ir.Operation, said: Said, target: Gpu, *, tf32: bool = False) -> Emitted:
    """The same of a function of :func:`shardc.backends.body.extract.extract`."""
    with function.context, ir.Location.unknown():
        body = read_structured(function)
        if body is not None:
            return STRUCTURED[body.op.name](body, said, target, tf32=tf32)
        graph = read_graph(function)
        with recursion(1000 + 40 * len(graph.generics)):  # elements are asked for along chains of ops
            return Kernel(graph, target, said, tf32).emit()


def read_kernel(function: ir.Operation, target: Gpu, *, tf32: bool = False) -> Kernel:
    """A function whose body is loops, as it would be cut into functions of a module."""
    graph = read_graph(function)
    with recursion(1000 + 40 * len(graph.generics)):
        return Kernel(graph, target, said_of_function(function), tf32)


@dataclass(eq=False)
class Kernel:
    """A kernel as functions of a module, which :meth:`emit` writes."""

    graph: Graph
    target: Gpu
    said: Said
    tf32: bool = False
    joins: Joins = field(default_factory=Joins)
    product: tuple[int, float] | None = None
    """Floating-point operations of the kernel's matmul, and how many there are in a second."""

    def __post_init__(self) -> None:
        self.roots: Roots = find_roots(self.graph)
        join_axes(self.roots)
        self.reads: dict[Root, Reads] = {root: self.roots.reads(root) for root in self.roots.items}
        self.limits: Limits = limits_of(self.target)
        self.matmul: Nest | None = matmul_nest(self.roots, self.reads)
        inside = self.matmul.roots if self.matmul else []
        self.functions = find_functions(self.roots, self.reads, self.limits, without=inside)
        check_in_place(self.roots, self.reads, [*self.functions, *([self.matmul] if self.matmul else [])])
        if self.graph.flat:
            self.functions = with_scalars(self.functions)
        self.memory: Memory = memory_of(self.graph, self.said.arguments, self.said.results)
        self.computed = {(v.generic, v.number): v for v in self.graph.computed}
        aligned = frozenset(p.name for p in self.memory.pointers)
        shaped = symbols_of(n for v in (*self.graph.arguments, *self.graph.results) for n in v.shape)
        numbers = frozenset(
            name for s, name in zip(self.graph.symbols, self.memory.sizes, strict=True) if s not in shaped
        )
        self.module = Module(
            self.said.name, self.said.title, self.memory, self.joins, aligned, numbers=numbers
        )

    def emit(self) -> Emitted:
        behind = [
            f
            for f in self.functions
            if self.matmul and any(waits(r, self.matmul, self.roots, self.reads) for r in f.roots)
        ]
        for number, function in enumerate(self.functions):
            if function not in behind:
                self._function(function, number)
        if self.matmul:
            self._matmul(self.matmul)
        for function in behind:
            self._function(function, self.functions.index(function))
        self.module.aligned = frozenset(p.name for p in self.memory.pointers)
        if self.graph.flat:
            return self.module.finish_flat()
        self._estimate()
        if self.matmul:
            return self.module.finish("matmul")
        kind = "reduction" if any(r.is_reduction for r in self.roots.items) else "pointwise"
        return self.module.finish(kind)

    def _estimate(self) -> None:
        """Notes what the kernel takes: every tensor that it is given, and every result, once."""
        members = self.roots.items
        moved = read_bytes(members, self.reads, self.roots, made=members)
        moved += sum(hint(prod(v.shape)) * element_bytes(v.element) for v in self.graph.results)
        flops, rate = self.product or (0, self.target.matmul_flop_s)
        self.module.estimated(flops, rate, moved, self.target)

    def _function(self, function: Function, number: int) -> None:
        several = len(self.functions) > 1 or self.matmul is not None
        name = self.module.name + (f"_{number}" if several else "")
        carried = any(function.carried(r) for r in function.roots)
        tile = tile_of(self.extent(function), self.limits, self.target, self.graph.config)
        spaces = spaces_of(function, tile.columns, carried)
        targets = {key: t for key in _keys(function) if (t := self._target(function, *key)) is not None}
        part = len(self.module.parts)
        partials: dict[Key, Pointer] = {}
        if tile.programs > 1:
            for root, n in _keys(function):
                if function.carried(root):
                    count, element = prod(root.result_shape(n)), root.generic.inits[n].element
                    wanted = f"{result_name(root.combiners[n])}_parts"
                    partials[root, n] = self.memory.work(wanted, count, element, str(part))
        writer = Writer(
            function,
            tile,
            spaces,
            Code(self._names()),
            self._elements(function),
            self.memory,
            self.joins,
            targets,
            partials,
            self.computed,
        )
        writer.code = writer.elements.code
        if self.graph.flat:
            if carried or spaces or number:
                raise TritonKernelNotSupported(
                    what="a kernel of any number of elements that does more than one thing with each"
                )
            writer.any_size = True
        self._check_written(function, writer)
        writer.write()
        constants, grid = self._launch(function, tile, writer)
        seconds = self._seconds(function, tile, writer, targets, partials)
        said = self._comment(function)
        self.module.parts.append(
            Part(name, writer.code.text, constants, grid, tile.warps, said, seconds=seconds)
        )
        if partials:
            self._join(function, name, tile, targets, partials)
        self._written(targets)

    def _matmul(self, nest: Nest) -> None:
        """The functions of the contraction, and of what stands around it."""
        matmul, targets = self.find_matmul(nest)
        add_matmul(self.module, matmul, self.graph.config)
        self.product = matmul.product.flops, matmul.product.flop_s(self.target)
        self._written(targets)

    def find_matmul(self, nest: Nest) -> tuple[Matmul, dict[Key, Pointer]]:
        """The contraction, and the memory of each result of its nest that has some."""
        product, of = nest.roots[0], self.memory.of
        targets = {key: t for key in _keys(nest) if (t := self._target(nest, *key)) is not None}
        value = self.computed[product.generic, 0]
        found = Matmul(
            self.module.name,
            nest,
            self.roots,
            find_contraction(product, nest.order),
            value,
            self.target,
            {v: p.name for v, p in of.items()},
            {key: t.name for key, t in targets.items()},
            {v: p.argument for v, p in of.items()},
            self.graph.sizes,
            self.memory.sizes,
            self.tf32,
        )
        return found, targets

    def _written(self, targets: dict[Key, Pointer]) -> None:
        """What functions after this one find in memory."""
        for (root, n), target in targets.items():
            value = self.computed[root.generic, n] if root.generic else root.value
            if self.roots.of.get(value) is root:
                self.memory.of[value] = target

    def _check_written(self, function: Function, writer: Writer) -> None:
        """What is overwritten is not read later, nor by another program. Raises TritonKernelNotSupported."""
        level = {root: at for at, stage in enumerate(function.stages) for root in stage}
        shared = writer.is_carried and any(not writer.is_whole(space) for space in writer.spaces)
        for root in function.roots:
            for argument, _ in self.roots.written(root):
                readers = [
                    r
                    for r in function.roots
                    if any(
                        isinstance(v, Argument) and v.position == argument.position
                        for v, _ in self.reads[r].ends
                    )
                ]
                place = level[root], function.inner(root)
                late = any(
                    level[r] > place[0] or (level[r] == place[0] and function.inner(r) != place[1])
                    for r in readers
                )
                if late or (shared and not function.inner(root)):
                    raise TritonKernelNotSupported(
                        what="a result in the memory of an operand that is read later"
                    )

    def _names(self) -> Names:
        taken = [name for p in self.memory.pointers for name in (p.name, p.argument)]
        return Names([*self.memory.sizes, *(p.name for p in self.memory.pointers), *taken[:0]])

    def _elements(self, function: Function) -> Elements:
        of = self.memory.of
        counts = [prod(v.shape) for v in of] + [prod(r.result_shape(n)) for r, n in _keys(function)]
        counts += [prod(function.sizes.values())]
        wide = self.graph.symbols or any(hint(c) >= INT32 for c in counts)
        return Elements(
            Code(self._names()),
            {v: p.name for v, p in of.items()},
            {v: p.argument for v, p in of.items()},
            self.graph.sizes,
            self.memory.sizes,
            "tl.int64" if wide else "tl.int32",
            merged=function.merged,
        )

    def _target(self, function: Nest, root: Root, n: int) -> Pointer | None:
        """The memory that a result is written to, if it is."""
        if root.stores[n]:
            return self.memory.outputs[root.stores[n][0]]
        others = [r for f in self.functions if f is not function for r in f.roots]
        value = self.computed[root.generic, n] if root.generic else root.value
        is_read = any(v is value for r in others for v, _ in self.reads[r].ends)
        if root.is_reduction and not is_read and not function.carried(root):
            return None
        element = root.generic.inits[n].element if root.generic else root.value.element
        return self.memory.work("work", prod(root.result_shape(n)), element)

    def extent(self, function: Function) -> Extent:
        """What decides the tile of a function."""
        carried = [r for r in function.roots if function.carried(r)]
        moved = read_bytes(function.roots, self.reads, self.roots, made=function.roots)
        made = [(r, n) for r, n in _keys(function) if not r.is_reduction or function.carried(r)]
        return Extent(
            hint(prod(function.sizes[a] for a in function.rows)),
            max((hint(prod(function.sizes[a] for a in axes)) for axes in function.spaces()), default=0),
            min(bytes_ := self._element_bytes(function), default=4),
            len({v for r in function.roots for v, _ in self.reads[r].ends}) + 1,
            len(carried),
            function.needs_whole_rows(),
            function.across,
            moved + sum(written_bytes(*key) for key in made),
            sum(written_bytes(r, n) for r, n in made if function.carried(r)),
            len(function.stages),
            max(bytes_, default=4),
        )

    def _element_bytes(self, function: Function) -> list[int]:
        """Of what is read or written in large numbers."""
        sizes = [element_bytes(r.value.element) for r in function.roots if r.value is not None]
        sizes += [
            element_bytes(base(v).element) for r in function.roots for v, _ in self.reads[r].ends if v.shape
        ]
        return sizes

    def _seconds(
        self,
        function: Function,
        tile: Tile,
        writer: Writer,
        targets: Mapping[Key, Pointer],
        partials: Mapping[Key, Pointer],
    ) -> float:
        """What one function takes, from its traffic and its programs."""
        moved = read_bytes(function.roots, self.reads, self.roots, made=function.roots)
        moved += sum((tile.programs if key in partials else 1) * written_bytes(*key) for key in targets)
        rows = hint(prod(function.sizes[a] for a in function.rows))
        widest = max((hint(s.total) for s in writer.spaces), default=1)
        if not writer.spaces and not writer.is_carried:
            return stream_s(moved, -(-rows // tile.columns), tile.warps, self.target)
        blocks = -(-rows // tile.rows)
        if writer.is_carried:
            across = -(-widest // tile.columns) if writer.spaces else 1
            return stream_s(
                moved, tile.programs * across, tile.warps, self.target, -(-blocks // tile.programs)
            )
        loops = [-(-hint(s.total) // tile.columns) for s in writer.spaces if s.looped]
        return stream_s(moved, blocks, tile.warps, self.target, len(function.stages) * max(loops, default=1))

    def _launch(self, function: Function, tile: Tile, writer: Writer) -> tuple[dict[str, int], str]:
        """The constants of a function, and the text of its grid."""
        text = lambda size: size_text(size, self.memory.sizes)  # noqa: E731
        rows = text(prod(function.sizes[a] for a in function.rows))
        if not function.order:
            return {}, "(1,)"
        if not writer.spaces and not writer.is_carried:
            return {"BLOCK": tile.columns}, f"(triton.cdiv({rows}, BLOCK),)"
        constants = {"BLOCK_ROWS": tile.rows} | ({"BLOCK_COLUMNS": tile.columns} if writer.spaces else {})
        if not writer.is_carried:
            return constants, f"(triton.cdiv({rows}, BLOCK_ROWS),)"
        if tile.programs > 1:
            constants["PROGRAMS"] = tile.programs
        programs = "PROGRAMS" if tile.programs > 1 else "1"
        blocked = [s for s in writer.spaces if not (isinstance(s.total, int) and s.total <= tile.columns)]
        if not blocked:
            return constants, f"({programs},)"
        across = [f"triton.cdiv({text(s.total)}, BLOCK_COLUMNS)" for s in blocked]
        return constants, f"({programs}, {across[0] if len(across) == 1 else f'max({chr(44).join(across)})'})"

    def _join(
        self,
        function: Function,
        name: str,
        tile: Tile,
        targets: dict[Key, Pointer],
        partials: dict[Key, Pointer],
    ) -> None:
        """Add a function for the results of each size that sums the programs' parts, in a fixed order."""
        groups: dict[object, list[Key]] = {}
        for root, n in partials:
            groups.setdefault(prod(root.result_shape(n)), []).append((root, n))
        for at, (count, keys) in enumerate(groups.items()):
            elements = self._elements(function)
            code, total = elements.code, size_text(count, self.memory.sizes)
            parts = power_of_two(tile.programs)
            block = max(1, min(power_of_two(hint(count)), 8192 // parts))
            tags = frozenset({ROW})
            code.add_index(ROW)
            code.line("column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]")
            code.line("part = tl.arange(0, BLOCK_PARTS)[None, :]")
            code.line(f"inside = (column < {total}) & (part < PARTS)")
            elements.masks[ROW] = f"column < {total}"
            column = Expr("column", "index", tags)
            for root, n in keys:
                self._joined(root, n, elements, column, total, targets[root, n], partials[root, n])
            constants = {"BLOCK": block, "BLOCK_PARTS": parts, "PARTS": tile.programs}
            grid = f"(triton.cdiv({total}, BLOCK),)"
            warps = max(1, min(8, block * parts // (8 * self.target.warp_size)))
            said = "Joins the parts of each program."
            moved = (tile.programs + 1) * sum(written_bytes(*key) for key in keys)
            seconds = stream_s(moved, -(-hint(count) // block), power_of_two(warps), self.target)
            self.module.parts.append(
                Part(
                    f"{name}_join{at or ''}",
                    code.text,
                    constants,
                    grid,
                    power_of_two(warps),
                    said,
                    seconds=seconds,
                )
            )

    def _joined(
        self,
        root: Root,
        n: int,
        elements: Elements,
        column: Expr,
        total: str,
        target: Pointer,
        partial: Pointer,
    ) -> None:
        combiner, init = root.combiners[n], root.generic.inits[n]
        shape, index = root.result_shape(n), root.result_index(n)
        below = 1
        elements.merged = set()
        for position, size in reversed(list(zip(index, shape, strict=True))):
            axis = position.plain()
            if axis is not None:
                text = (
                    f"column // {size_text(below, self.memory.sizes)} % {size_text(size, self.memory.sizes)}"
                )
                elements.axes[axis] = Expr(text, "index", column.vary, atom=False)
            below = below * size
        identity = elements.scalar(combiner.identity)
        value = elements.code.name(
            "parts",
            Expr(
                f"tl.load({partial.name} + part * {total} + column, mask=inside, other={identity.text})",
                "",
                column.vary,
            ),
        )
        text = self.joins.along(combiner, value.text, 1)
        start = elements.element(init, index)
        joined = elements.code.name(
            result_name(combiner),
            Expr(self.joins.from_start(combiner, start, text), str(init.element), column.vary),
        )
        elements.store(target.name, column, joined)

    def _comment(self, function: Function) -> str:
        rows = " x ".join(size_text(function.sizes[a], self.memory.sizes) for a in function.rows) or "one"
        spaces = [
            " x ".join(size_text(function.sizes[a], self.memory.sizes) for a in s) for s in function.spaces()
        ]
        if any(function.carried(r) for r in function.roots):
            return (
                f"Sums over {rows} rows{' of ' + ' and '.join(spaces) if spaces else ''}: each program "
                f"takes a share of them."
            )
        return f"{rows} rows of {' and '.join(spaces)}." if spaces else f"{rows} elements."


def _keys(function: Nest) -> list[Key]:
    return [(r, n) for r in function.roots for n in range(r.result_count())]
