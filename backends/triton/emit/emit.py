"""``emit_kernel``: writes a ``kern.kernel`` as one readable Triton module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir

from shardc.backends.body.axes import join_axes
from shardc.backends.body.contraction import find_contraction
from shardc.backends.body.extract import extract_kernels
from shardc.backends.body.graph import Argument, Graph, Value
from shardc.backends.body.handlers import handlers
from shardc.backends.body.linear import Axis
from shardc.backends.body.nest import Nest, check_in_place, recursion
from shardc.backends.body.read_graph import read_graph
from shardc.backends.body.roots import Reads, Root, Roots, base, find_roots
from shardc.backends.body.structured import read_structured
from shardc.backends.triton.config import Extent, Tile, power_of_two, tile_of
from shardc.backends.triton.emit.code import Code
from shardc.backends.triton.emit.element import Elements
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.emit.function import ROW, FunctionWriter, Key
from shardc.backends.triton.emit.memory import Memory, Pointer, memory_of
from shardc.backends.triton.emit.module import Module, Part
from shardc.backends.triton.emit.names import Said, said_of, said_of_function
from shardc.backends.triton.emit.nests import Function, find_functions, with_scalars
from shardc.backends.triton.emit.reduce import Joins, combiner_of, init_of, result_name
from shardc.backends.triton.emit.text import Expr, Names
from shardc.backends.triton.emit.traffic import element_bytes, read_bytes, result_element, written_bytes
from shardc.backends.triton.matmul.contraction import Matmul
from shardc.backends.triton.matmul.kernel import add_matmul, all_after, matmul_nest
from shardc.backends.triton.matmul.product import product_of
from shardc.cost.kernel import stream_s
from shardc.cost.machine import Gpu
from shardc.cost.matmul import Product
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.dialects.kern.size import AnySize, hint, symbols_of

WRITERS = tuple(f"shardc.backends.triton.{name}" for name in ("attention", "emit", "losses", "matmul"))
"""Packages with the emitters of structured ops of ``kern``."""
INT32 = (1 << 31) - (1 << 17)
"""Index from which on 64 bits are needed, since a tile may extend beyond the last element."""


def emit_kernel(kernel: ir.Operation, target: Gpu, *, tf32: bool = False) -> Emitted:
    """Return the module of ``kernel`` for ``target``, with tiles of ``#kern.config`` or chosen here.

    ``tf32``: torch allows TF32 in f32 matmuls. Raises TritonKernelNotSupported, KernelNotSupported.
    """
    functions = extract_kernels([kernel])
    (function,) = functions.body
    return emit_function(function.operation, said_of(kernel), target, tf32=tf32)


def emit_function(function: ir.Operation, said: Said, target: Gpu, *, tf32: bool = False) -> Emitted:
    """Do the same for a function of :func:`shardc.backends.body.extract.extract`."""
    with function.context, ir.Location.unknown():
        body = read_structured(function)
        if body is not None:
            return handlers(*WRITERS)[body.op.name](body, said, target, tf32=tf32)
        graph = read_graph(function)
        with recursion(1000 + 40 * len(graph.generics)):  # elements are written recursively along ops
            return Kernel(graph, target, said, tf32).emit()


def read_kernel(function: ir.Operation, target: Gpu, *, tf32: bool = False) -> Kernel:
    """Return a function with a body of loops, divided into the functions of a module."""
    graph = read_graph(function)
    with recursion(1000 + 40 * len(graph.generics)):
        return Kernel(graph, target, said_of_function(function), tf32)


@dataclass(eq=False)
class Kernel:
    """Kernel divided into functions of a module, which :meth:`emit` writes."""

    graph: Graph
    target: Gpu
    said: Said
    tf32: bool = False
    joins: Joins = field(default_factory=Joins)
    product: Product | None = None
    """Kernel's matmul, after it was written."""

    def __post_init__(self) -> None:
        self.roots: Roots = find_roots(self.graph)
        join_axes(self.roots)
        self.reads: dict[Root, Reads] = {root: self.roots.reads(root) for root in self.roots.items}
        self.matmul: Nest | None = matmul_nest(self.roots, self.reads)
        inside = self.matmul.roots if self.matmul else []
        self.functions = find_functions(self.roots, self.reads, self.target, without=inside)
        check_in_place(self.roots, self.reads, [*self.functions, *([self.matmul] if self.matmul else [])])
        if self.graph.flat:
            self.functions = with_scalars(self.functions)
        self.memory: Memory = memory_of(self.graph, self.said.arguments, self.said.results)
        self.computed = {(v.generic, v.number): v for v in self.graph.computed}
        shaped = symbols_of(n for v in (*self.graph.arguments, *self.graph.results) for n in v.shape)
        sizes = zip(self.graph.symbols, self.memory.sizes, strict=True)
        numbers = frozenset(name for symbol, name in sizes if symbol not in shaped)
        self.module = Module(self.said.name, self.said.title, self.memory, self.joins, numbers=numbers)

    def emit(self) -> Emitted:
        late = all_after(self.matmul.roots[0], self.roots, self.reads) if self.matmul else set()
        behind = [f for f in self.functions if late.intersection(f.roots)]
        for number, function in enumerate(self.functions):
            if function not in behind:
                self._function(function, number)
        if self.matmul:
            self._matmul(self.matmul)
        for function in behind:
            self._function(function, self.functions.index(function))
        if self.graph.flat:
            return self.module.finish_flat()
        self._estimate()
        kind = "reduction" if any(r.is_reduction for r in self.roots.items) else "pointwise"
        return self.module.finish("matmul" if self.matmul else kind)

    def _estimate(self) -> None:
        """Record the kernel's estimate. Every input tensor and every result is moved once."""
        members, flops, rate = self.roots.items, 0, self.target.matmul_flop_s
        moved = read_bytes(members, self.reads, self.roots, made=members)
        moved += sum(hint(prod(v.shape)) * element_bytes(v.element) for v in self.graph.results)
        if self.product:
            flops, rate = self.product.flops, self.product.flop_s(self.target)
        self.module.estimated(flops, rate, moved, self.target)

    def _function(self, function: Function, number: int) -> None:
        several = len(self.functions) > 1 or self.matmul is not None
        name = self.module.name + (f"_{number}" if several else "")
        tile = tile_of(self.extent(function), self.target, self.graph.config)
        targets, partials = self._targets(function), self._partials(function, tile)
        elements, flat = self._elements(function), self.graph.flat
        writer = FunctionWriter(function, tile, elements, self.joins, targets, partials, self.computed, flat)
        if flat and (writer.is_carried or writer.spaces or number):
            twice = "a kernel of any number of elements that does more than one thing with each"
            raise TritonKernelNotSupported(what=twice)
        self._check_written(writer)
        writer.write()
        constants, grid = self._launch(writer)
        seconds, says = self._seconds(writer), self._comment(writer)
        part = Part(name, writer.code.text, constants, grid, tile.warps, says, seconds=seconds)
        self.module.parts.append(part)
        if partials:
            self._join(name, writer)
        self._written(targets)

    def _matmul(self, nest: Nest) -> None:
        """Write the functions of the contraction and of the roots in its nest."""
        matmul, targets = self.find_matmul(nest)
        self.product = product_of(matmul)
        add_matmul(self.module, matmul, self.product, self.graph.config)
        self._written(targets)

    def find_matmul(self, nest: Nest) -> tuple[Matmul, dict[Key, Pointer]]:
        """Return the contraction, and the memory of its nest's results that are written to memory."""
        product, targets = nest.roots[0], self._targets(nest)
        assert product.generic is not None
        contraction, value = find_contraction(product, nest.order), self.computed[product.generic, 0]
        names, sizes = {key: t.name for key, t in targets.items()}, self.graph.sizes
        given = (contraction, value, self.target, self.memory, names, sizes, self.tf32)
        return Matmul(self.module.name, nest, self.roots, *given), targets

    def _written(self, targets: Mapping[Key, Pointer]) -> None:
        """Register the results in memory for later functions."""
        for (root, n), target in targets.items():
            value = self._value(root, n)
            if self.roots.of.get(value) is root:
                self.memory.of[value] = target

    def _value(self, root: Root, n: int) -> Value:
        """Return the tensor that is a result of a root."""
        if root.generic is not None:
            return self.computed[root.generic, n]
        assert root.value is not None
        return root.value

    def _check_written(self, writer: FunctionWriter) -> None:
        """Check that no overwritten memory is read later, or by another program.

        Raises TritonKernelNotSupported.
        """
        function = writer.function
        level = {root: at for at, stage in enumerate(function.stages) for root in stage}
        shared = writer.is_carried and not all(writer.is_whole(space.total) for space in writer.spaces)
        for root in function.roots:
            inner = function.inner(root)
            for argument, _ in self.roots.written(root):
                readers = [r for r in function.roots if argument.position in self._arguments(r)]
                late = any(
                    level[r] > level[root] or (level[r] == level[root] and function.inner(r) != inner)
                    for r in readers
                )
                if late or (shared and not inner):
                    later = "a result in the memory of an operand that is read later"
                    raise TritonKernelNotSupported(what=later)

    def _arguments(self, root: Root) -> set[int]:
        """Return the positions of the arguments that a root reads."""
        return {v.position for v, _ in self.reads[root].ends if isinstance(v, Argument)}

    def _elements(self, function: Function) -> Elements:
        counts = [prod(v.shape) for v in self.memory.of]
        counts += [prod(r.result_shape(n)) for r, n in _keys(function)] + [prod(function.sizes.values())]
        wide = self.graph.symbols or any(hint(c) >= INT32 for c in counts)
        code = Code(Names([*self.memory.sizes, *(p.name for p in self.memory.pointers)]))
        index_type = "tl.int64" if wide else "tl.int32"
        return Elements(code, self.memory, self.graph.sizes, index_type, merged=function.merged)

    def _targets(self, nest: Nest) -> dict[Key, Pointer]:
        """Return the memory of each result that is written."""
        return {key: target for key in _keys(nest) if (target := self._target(nest, *key)) is not None}

    def _target(self, function: Nest, root: Root, n: int) -> Pointer | None:
        """Return the memory for a result; None if it is not written."""
        if root.stores[n]:
            return self.memory.outputs[root.stores[n][0]]
        others = [r for f in self.functions if f is not function for r in f.roots]
        value = self._value(root, n)
        is_read = any(v is value for r in others for v, _ in self.reads[r].ends)
        if root.is_reduction and not is_read and not function.carried(root):
            return None
        return self.memory.work("work", prod(root.result_shape(n)), result_element(root, n))

    def _partials(self, function: Function, tile: Tile) -> dict[Key, Pointer]:
        """Return the memory for the programs' parts of carried results, if there are several programs."""
        part, found = len(self.module.parts), {}
        for root, n in _keys(function):
            if tile.programs > 1 and function.carried(root):
                name, count = f"{result_name(combiner_of(root, n))}_parts", prod(root.result_shape(n))
                found[root, n] = self.memory.work(name, count, result_element(root, n), part)
        return found

    def extent(self, function: Function) -> Extent:
        """Return the extent of a function, which decides its tile."""
        moved = read_bytes(function.roots, self.reads, self.roots, made=function.roots)
        made = [(r, n) for r, n in _keys(function) if not r.is_reduction or function.carried(r)]
        touched = {v for r in function.roots for v, _ in self.reads[r].ends}
        held = [r.value for r in function.roots if r.value is not None]
        bytes_ = [element_bytes(v.element) for v in (*held, *(base(v) for v in touched if v.shape))]
        return Extent(
            hint(prod(function.sizes[a] for a in function.rows)),
            max((hint(prod(function.sizes[a] for a in axes)) for axes in function.spaces()), default=0),
            min(bytes_, default=4),
            wide=len(touched) + 1,
            sums=sum(function.carried(r) for r in function.roots),
            whole=function.needs_whole_rows(),
            across=function.across,
            moved_bytes=moved + sum(written_bytes(*key) for key in made),
            sum_bytes=sum(written_bytes(r, n) for r, n in made if function.carried(r)),
            stages=len(function.stages),
            widest_bytes=max(bytes_, default=4),
        )

    def _seconds(self, writer: FunctionWriter) -> float:
        """Estimate the seconds of one function, from its traffic and its programs."""
        function, tile, target = writer.function, writer.tile, self.target
        moved = read_bytes(function.roots, self.reads, self.roots, made=function.roots)
        times = {key: tile.programs if key in writer.partials else 1 for key in writer.targets}
        moved += sum(n * written_bytes(*key) for key, n in times.items())
        rows = hint(prod(function.sizes[a] for a in function.rows))
        if not writer.spaces and not writer.is_carried:
            return stream_s(moved, -(-rows // tile.columns), tile.warps, target)
        blocks, widths = -(-rows // tile.rows), {s: -(-hint(s.total) // tile.columns) for s in writer.spaces}
        if writer.is_carried:
            programs = tile.programs * max(widths.values(), default=1)
            return stream_s(moved, programs, tile.warps, target, -(-blocks // tile.programs))
        loops = max((width for s, width in widths.items() if s.looped), default=1)
        return stream_s(moved, blocks, tile.warps, target, len(function.stages) * loops)

    def _launch(self, writer: FunctionWriter) -> tuple[dict[str, int], str]:
        """Return the constants of a function, and the text of its grid."""
        function, tile, spaces = writer.function, writer.tile, writer.spaces
        rows = writer.text(writer.row_count)
        if not function.order:
            return {}, "(1,)"
        if not spaces and not writer.is_carried:
            return {"BLOCK": tile.columns}, f"(triton.cdiv({rows}, BLOCK),)"
        constants = {"BLOCK_ROWS": tile.rows} | ({"BLOCK_COLUMNS": tile.columns} if spaces else {})
        if not writer.is_carried:
            return constants, f"(triton.cdiv({rows}, BLOCK_ROWS),)"
        if tile.programs > 1:
            constants["PROGRAMS"] = tile.programs
        programs = "PROGRAMS" if tile.programs > 1 else "1"
        totals = [s.total for s in spaces if not writer.is_whole(s.total)]
        across = [f"triton.cdiv({writer.text(total)}, BLOCK_COLUMNS)" for total in totals]
        if not across:
            return constants, f"({programs},)"
        return constants, f"({programs}, {across[0] if len(across) == 1 else f'max({chr(44).join(across)})'})"

    def _join(self, name: str, writer: FunctionWriter) -> None:
        """Add a function for the results of each size that sums the programs' parts, in a fixed order."""
        groups: dict[AnySize, list[Key]] = {}
        for root, n in writer.partials:
            groups.setdefault(prod(root.result_shape(n)), []).append((root, n))
        programs, parts = writer.tile.programs, power_of_two(writer.tile.programs)
        for at, (count, keys) in enumerate(groups.items()):
            code = self._join_body(writer, count, keys)
            block = max(1, min(power_of_two(hint(count)), 8192 // parts))  # results per program
            constants = {"BLOCK": block, "BLOCK_PARTS": parts, "PARTS": programs}
            warps = power_of_two(max(1, min(8, block * parts // (8 * self.target.warp_size))))
            grid, says = f"(triton.cdiv({writer.text(count)}, BLOCK),)", "Joins the parts of each program."
            moved = (programs + 1) * sum(written_bytes(*key) for key in keys)
            seconds = stream_s(moved, -(-hint(count) // block), warps, self.target)
            part = Part(f"{name}_join{at or ''}", code, constants, grid, warps, says, seconds=seconds)
            self.module.parts.append(part)

    def _join_body(self, writer: FunctionWriter, count: AnySize, keys: list[Key]) -> list[str]:
        elements, total = self._elements(writer.function), writer.text(count)
        code = elements.code
        code.add_index(ROW)
        code.line("column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]")
        code.line("part = tl.arange(0, BLOCK_PARTS)[None, :]")
        code.line(f"inside = (column < {total}) & (part < PARTS)")
        elements.masks[ROW] = f"column < {total}"
        for key in keys:
            self._joined(writer, key, elements, total)
        return code.text

    def _joined(self, writer: FunctionWriter, key: Key, elements: Elements, total: str) -> None:
        """Write the sum of one result's parts, and its store."""
        (root, n), code, vary = key, elements.code, frozenset({ROW})
        combiner, init, index = combiner_of(root, n), init_of(root, n), root.result_index(n)
        below: AnySize = 1
        elements.merged = set()
        for position, size in reversed(list(zip(index, root.result_shape(n), strict=True))):
            if (axis := position.plain()) is not None:
                text = f"column // {writer.text(below)} % {writer.text(size)}"
                elements.axes[axis] = Expr(text, "index", vary, atom=False)
            below = below * size
        identity, place = elements.scalar(combiner.identity), f"{writer.partials[key].name} + part * {total}"
        load = f"tl.load({place} + column, mask=inside, other={identity.text})"
        text = self.joins.along(combiner, code.name("parts", Expr(load, "", vary)).text, 1)
        text = self.joins.from_start(combiner, elements.element(init, index), text)
        joined = code.name(result_name(combiner), Expr(text, str(init.element), vary))
        elements.store(writer.targets[key].name, Expr("column", "index", vary), joined)

    def _comment(self, writer: FunctionWriter) -> str:
        def sizes(axes: Iterable[Axis]) -> str:
            return " x ".join(writer.text(writer.function.sizes[a]) for a in axes)

        rows = sizes(writer.function.rows) or "one"
        spaces = " and ".join(sizes(s.axes) for s in writer.spaces)
        if writer.is_carried:
            within = f" of {spaces}" if spaces else ""
            return f"Sums over {rows} rows{within}: each program takes a share of them."
        return f"{rows} rows of {spaces}." if spaces else f"{rows} elements."


def _keys(function: Nest) -> list[Key]:
    return [(r, n) for r in function.roots for n in range(r.result_count())]
