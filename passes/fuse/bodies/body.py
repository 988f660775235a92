"""Body of a kernel: as few ``linalg`` ops on tensors as its reductions allow.

Only results, reductions, and expensive values that several ops read are written to a tensor. Other values are
computed inside the ops that read them. ``rounding`` says where 16-bit floats are rounded: ``"eager"`` at each
ATen call, as eager does, ``"fused"`` at the kernel's results only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

import torch
from torch_mlir import ir

from shardc.dialects.kern.size import AnySize, Symbol, evaluate, symbols_of
from shardc.dialects.kern.types import ELEMENTS, builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.bodies.layout import IndexTerm, Layout, Slices, Tensor, affine_map
from shardc.passes.fuse.bodies.reshape import Reshaper, dynamic
from shardc.passes.fuse.grouping.legal import depths
from shardc.passes.fuse.lower.scalars import COMBINE, Scalar, Scalars
from shardc.passes.fuse.reading.graph import Access, Node, Value
from shardc.passes.fuse.reading.space import Atoms, Dim, Space
from shardc.passes.fuse.reading.symbols import sized


@dataclass
class Nest:
    """A ``linalg.generic``: the nodes whose results it writes, all over the same loops."""

    nodes: list[Node]
    domain: tuple[int, ...]
    loads: dict[tuple[Value, Tensor], None] = field(default_factory=dict)


class Body:
    """Writer of the body of a kernel of ``nodes``. ``apart`` as for :class:`Layout`."""

    def __init__(
        self,
        nodes: Sequence[Node],
        space: Space,
        results: Sequence[Value],
        rounding: str,
        apart: Sequence[Atoms] = (),
    ) -> None:
        self._nodes, self._rounding = list(nodes), rounding
        self._layout = Layout(nodes, space, apart)
        self._depth = depths(self._nodes)
        self._made = {node.out: node for node in nodes}
        self._results = list(results)
        self._exported = {v.node.out for v in results if v.node is not None}
        self._roots = self._choose_roots()
        self._tensors: dict[Value, ir.Value] = {}
        self._arguments: dict[tuple[Value, Slices | None, tuple[AnySize, ...]], ir.Value] = {}
        self._sizes: dict[AnySize, ir.Value] = {}

    @property
    def inputs(self) -> list[Value]:
        """The tensors that the kernel reads, in the order of its arguments."""
        found: dict[Value, None] = {}
        for nest in self._nests():
            read = [value for value, _ in self._loads(nest)] + [access.base for access in self._gathers(nest)]
            found.update((value, None) for value in read if value not in self._made)
        return list(found)

    @property
    def symbols(self) -> list[Symbol]:
        """The symbols in its sizes, in the order of the integers that follow its tensors."""
        sizes = [n for value in (*self.inputs, *self._results) for n in value.type.shape]
        sizes += [*self._layout.sizes, *(n for node in self._nodes for n in node.sizes)]
        return sorted(symbols_of(sizes))

    def _choose_roots(self) -> set[Node]:
        """Return the nodes whose results are written to a tensor."""
        gathered = {a.base for node in self._nodes for a in node.accesses if a.jumps}
        self._roots = {n for n in self._nodes if n.reduce or n.out in self._exported or n.out in gathered}
        while True:
            nests: dict[Node, list[Nest]] = {}
            for nest in self._nests():
                for node in self._inlined(nest):
                    nests.setdefault(node, []).append(nest)
            inner = [(n, users) for n, users in nests.items() if n.heavy and n not in self._roots]
            more = {n for n, users in inner if len(users) > 1 or users[0].domain != self._layout.domain(n)}
            if not more:
                return self._roots
            self._roots |= more

    def _nests(self) -> list[Nest]:
        """Return the nests in order: by the number of reductions before them, then by size, reductions
        last.
        """
        found: dict[tuple[int, tuple[int, ...], int, tuple[int, ...]], Nest] = {}
        for node in self._nodes:
            if node in self._roots:
                domain = self._layout.domain(node)
                before = self._depth[node.out] - bool(node.reduce)
                key = (before, tuple(sorted(self._layout.reduced(node))), len(domain), domain)
                found.setdefault(key, Nest([], domain)).nodes.append(node)
        return [found[key] for key in sorted(found)]

    def _inlined(self, nest: Nest) -> list[Node]:
        """Return all nodes that a nest computes, including its own."""
        found: dict[Node, None] = {}

        def visit(node: Node) -> None:
            for access in node.accesses:
                inner = None if access.jumps else self._made.get(access.base)
                if inner is None or inner in found:
                    continue
                if inner not in self._roots or inner in nest.nodes:
                    visit(inner)
            found[node] = None

        for node in nest.nodes:
            if node not in found:
                visit(node)
        return list(found)

    def _loads(self, nest: Nest) -> list[tuple[Value, Tensor]]:
        """Return the tensors that a nest reads, and how."""
        found: dict[tuple[Value, Tensor], None] = {}
        computed = set(self._inlined(nest))
        for node in self._inlined(nest):
            for access in node.accesses:
                if not self._extracts(access) and self._made.get(access.base) not in computed:
                    found[access.base, self._view(access)] = None
        return list(found)

    def _extracts(self, access: Access) -> bool:
        """Return whether an access is at computed indices, or reads a slice of what the kernel makes."""
        return access.gathers or (access.jumps and access.base in self._made)

    def _gathers(self, nest: Nest) -> list[Access]:
        """Return the accesses of a nest that extract single elements."""
        return [a for node in self._inlined(nest) for a in node.accesses if self._extracts(a)]

    def _view(self, access: Access) -> Tensor:
        node = self._made.get(access.base)
        return self._layout.made(node) if node is not None else self._layout.read(access)

    def write(self, block: ir.Block, shapes: Sequence[tuple[AnySize, ...]], loc: ir.Location) -> None:
        """Write all ops and the yield. ``shapes``: of the tensors among the block's arguments."""
        tensors, numbers = list(block.arguments)[: len(shapes)], list(block.arguments)[len(shapes) :]
        made = self.compute(block, tensors, numbers, shapes, loc)
        yield_values(made, loc=loc, ip=ir.InsertionPoint(block))

    def shape_of(self, result: Value) -> tuple[AnySize, ...]:
        """Return the shape in which the loops compute a result: a size for each loop."""
        assert result.node is not None
        return self._layout.made(result.node).shape

    def compute(
        self,
        block: ir.Block,
        tensors: Sequence[ir.Value],
        numbers: Sequence[ir.Value],
        shapes: Sequence[tuple[AnySize, ...]],
        loc: ir.Location,
    ) -> list[ir.Value]:
        """Write all ops into ``block``; return the results. ``numbers``: values of :attr:`symbols`."""
        self._block, self._loc, self._context = block, loc, loc.context
        self._ip = ir.InsertionPoint(block)
        self._reshaper = Reshaper(self._index_of, self._ip, loc)
        self._given = dict(zip(self.inputs, zip(tensors, shapes, strict=True), strict=True))
        self._numbers = dict(zip(self.symbols, numbers, strict=True))
        for nest in self._nests():
            self._write_nest(nest)
        made = []
        for value in self._results:
            assert value.node is not None
            found, shape = self._tensors[value.node.out], self._layout.made(value.node).shape
            made.append(self._reshaper.reshape(found, shape, value.type.shape))
        return made

    def _op(
        self,
        name: str,
        type_: ir.Type,
        operands: Sequence[ir.Value],
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> ir.Value:
        made = ir.Operation.create(name, [type_], operands, attributes, loc=self._loc, ip=self._ip)
        return made.result

    def _index_of(self, size: AnySize) -> ir.Value:
        """Return a symbolic size as a value of type ``index``."""
        if size not in self._sizes:
            index = ir.IndexType.get(self._context)

            def constant(number: int) -> ir.Value:
                return self._op("arith.constant", index, [], {"value": ir.IntegerAttr.get(index, number)})

            def joined(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
                return self._op(name, index, [a, b])

            times, plus = partial(joined, "arith.muli"), partial(joined, "arith.addi")
            self._sizes[size] = evaluate(size, self._numbers.__getitem__, constant, times, plus)
        return self._sizes[size]

    def _write_nest(self, nest: Nest) -> None:
        loads = self._loads(nest)
        ins = [self._tensors[v] if v in self._made else self._argument(v, t) for v, t in loads]
        tables = {a: self._table(a) for a in self._gathers(nest)}
        views = [self._layout.made(node) for node in nest.nodes]
        outs = [self._init(node, view.shape) for node, view in zip(nest.nodes, views, strict=True)]
        unread = self._unread(nest, [*(t for _, t in loads), *views])
        ins += [self._empty(tensor.shape, torch.bool) for tensor in unread]
        reduced = self._layout.reduced(nest.nodes[0])
        with self._context, self._loc:
            maps = [affine_map(t, nest.domain) for t in (*(t for _, t in loads), *unread, *views)]
            kinds = ["reduction" if n in reduced else "parallel" for n in nest.domain]
            iterators = [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
            attributes = {
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
                "iterator_types": ir.ArrayAttr.get(iterators),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(ins), len(outs)]),
            }
        results = [o.type for o in outs]
        op = ir.Operation.create(
            "linalg.generic", results, [*ins, *outs], attributes, regions=1, loc=self._loc, ip=self._ip
        )
        elements = [ir.RankedTensorType(v.type).element_type for v in (*ins, *outs)]
        region = op.regions[0].blocks.append(*elements, arg_locs=[self._loc] * len(elements))
        self._write_region(nest, loads, tables, region, len(ins))
        for node, result in zip(nest.nodes, op.results, strict=True):
            self._tensors[node.out] = result

    def _unread(self, nest: Nest, tensors: list[Tensor]) -> list[Tensor]:
        """Return operands that only give the sizes of loops that no tensor of the nest has."""
        missing = tuple(loop for loop in nest.domain if not any(loop in tensor.loops for tensor in tensors))
        return [Tensor(tuple(self._layout.sizes[loop] for loop in missing), missing)] if missing else []

    def _empty(self, shape: tuple[AnySize, ...], dtype: torch.dtype) -> ir.Value:
        type_ = builtin_type(sized(shape, dtype), self._context)
        return self._op("tensor.empty", type_, [self._index_of(n) for n in dynamic(shape)])

    def _table(self, access: Access) -> ir.Value:
        if access.base in self._made:
            return self._tensors[access.base]
        return self._argument(access.base, self._layout.table(access))

    def _element(
        self, s: Scalars, table: ir.Value, access: Access, domain: Sequence[int], *indices: Scalar
    ) -> Scalar:
        """Return the element of ``access`` at ``indices``, or of a slice where the loops are."""
        loops = self._layout.table(access).loops
        computed = iter(
            [
                self._in_slice(s, dim, domain, indices)
                for dim in access.dims
                if dim.sliced or (dim.gathered and dim.size != 1)
            ]
        )
        positions = [s.position(next(computed) if loop is None else domain.index(loop)) for loop in loops]
        return s.extract(table, positions, self._memory(access.base))

    def _in_slice(self, s: Scalars, dim: Dim, domain: Sequence[int], indices: Sequence[Scalar]) -> Scalar:
        """Return the index along a dim that a slice reads, where the loops are or at a computed index."""
        at = indices[dim.number] if dim.gathered else self._index(s, self._layout.steps(dim.atoms), domain)
        return s.add(s.mul(at, dim.step), dim.offset) if dim.sliced else at

    def _write_region(
        self,
        nest: Nest,
        loads: list[tuple[Value, Tensor]],
        tables: dict[Access, ir.Value],
        region: ir.Block,
        inputs: int,
    ) -> None:
        s = Scalars(region, self._loc, self._index_of)
        arguments = list(region.arguments)
        loaded = zip(loads, arguments, strict=False)
        read = {load: s.load(argument, self._memory(load[0])) for load, argument in loaded}
        values: dict[Value, Scalar] = {}

        def term_of(a: Access) -> Scalar | Callable[..., Scalar]:
            if a.gathers:
                return partial(self._element, s, tables[a], a, nest.domain)
            if a in tables:
                return self._element(s, tables[a], a, nest.domain)
            return values[a.base] if a.base in values else read[a.base, self._view(a)]

        for node in self._inlined(nest):
            terms = [term_of(a) for a in node.accesses]
            terms += [self._index(s, steps, nest.domain) for steps in self._layout.place(node)]
            s.compute, s.steady = node.dtype, node.steady
            if node.compute is not None:
                values[node.out] = s.cast(node.compute(s, *terms), self._held(node))
                continue
            accumulator = Scalar(arguments[inputs + nest.nodes.index(node)], node.dtype)
            term, *others = (s.cast(t, node.dtype) for t in terms if isinstance(t, Scalar))
            for other in others:
                term = s.mul(term, other)
            values[node.out] = COMBINE[node.reduce](s, term, accumulator)
        stored = [s.store(values[node.out], self._memory(node.out)) for node in nest.nodes]
        ir.Operation.create("linalg.yield", [], stored, loc=self._loc, ip=ir.InsertionPoint(region))

    def _index(self, s: Scalars, steps: Sequence[IndexTerm], domain: Sequence[int]) -> Scalar:
        """Return the sum of ``steps`` as an i64."""
        total = s.constant(0, torch.int64)
        for step in steps:
            at = s.index(domain.index(step.loop))
            if step.inner != 1:
                at = s.op("arith.divsi", [at, s.size(step.inner, torch.int64)], torch.int64)
            if step.inner * step.size != self._layout.sizes[step.loop]:
                at = s.op("arith.remsi", [at, s.size(step.size, torch.int64)], torch.int64)
            total = s.add(total, s.mul(at, s.size(step.factor, torch.int64)))
        return total

    def _held(self, node: Node) -> torch.dtype:
        """Return the dtype of a node's value inside the kernel."""
        dtype = node.out.type.dtype
        narrow = dtype.is_floating_point and dtype.itemsize == 2
        return node.dtype if narrow and self._rounding == "fused" and node.dtype == torch.float32 else dtype

    def _memory(self, value: Value) -> torch.dtype:
        """Return the dtype in which a value is written to a tensor."""
        node = self._made.get(value)
        return value.type.dtype if node is None or value in self._exported else self._held(node)

    def _argument(self, value: Value, tensor: Tensor) -> ir.Value:
        key = (value, tensor.cut, tensor.shape)
        if key not in self._arguments:
            part, shape = self._given[value]
            if tensor.cut is not None:
                part = self._reshaper.reshape(part, shape, tuple(size for size, *_ in tensor.cut))
                part = self._reshaper.cut_out(part, [(first, n, step) for _, first, n, step in tensor.cut])
                shape = tuple(count for _, _, count, _ in tensor.cut)
            self._arguments[key] = self._reshaper.reshape(part, shape, tensor.shape)
        return self._arguments[key]

    def _init(self, node: Node, shape: tuple[AnySize, ...]) -> ir.Value:
        """Return the init of a node's result; for a reduction it is filled with the initial value."""
        made = self._empty(shape, self._memory(node.out))
        if not node.reduce:
            return made
        element = ir.Type.parse(ELEMENTS[node.dtype], self._context)
        with self._loc:
            if node.dtype.is_floating_point:
                value: ir.Attribute = ir.FloatAttr.get(element, _START[node.reduce])
            else:
                bounds = torch.iinfo(node.dtype)
                starts = {"sum": 0, "product": 1, "max": bounds.min, "min": bounds.max}
                value = ir.IntegerAttr.get(element, starts[node.reduce])
        operands = [self._op("arith.constant", element, [], {"value": value}), made]
        attributes, loc = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1], self._context)}, self._loc
        fill = ir.Operation.create(
            "linalg.fill", [made.type], operands, attributes, regions=1, loc=loc, ip=self._ip
        )
        region = fill.regions[0].blocks.append(element, element, arg_locs=[loc] * 2)
        inside = ir.InsertionPoint(region)
        ir.Operation.create("linalg.yield", [], [region.arguments[0]], loc=loc, ip=inside)
        return fill.result


_START = {"sum": 0.0, "product": 1.0, "max": -inf, "min": inf}
