"""The body of one kernel: ``linalg`` on tensors, as few ops as its reductions allow.

Values are written to a tensor only where they must be: results, reductions, and what is heavy to compute and
read by several ops. Everything else is computed inside the ops that need it. ``rounding`` says where 16-bit
floats are rounded: ``"eager"`` at each ATen call, as eager does, ``"fused"`` at the kernel's results only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize, Symbol, evaluate, symbols_of
from shardc.dialects.kern.types import ELEMENTS, builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.bodies.layout import Cut, Layout, Step, Tensor, affine_map
from shardc.passes.fuse.bodies.reshape import Reshaper, dynamic
from shardc.passes.fuse.grouping.legal import depths
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.reading.graph import Access, Node, Value
from shardc.passes.fuse.reading.space import Space

Given = tuple[ir.Value, tuple[AnySize, ...]]
"""A tensor among the arguments, with its shape."""


@dataclass
class Nest:
    """One ``linalg.generic``: the nodes whose results it writes, all over the same loops."""

    nodes: list[Node]
    domain: tuple[int, ...]
    loads: dict[tuple[Value, Tensor], None] = field(default_factory=dict)


class Body:
    """Writes the body of a kernel of ``nodes`` into ``block``."""

    def __init__(self, nodes: Sequence[Node], space: Space, results: Sequence[Value], rounding: str) -> None:
        self._nodes, self._rounding = list(nodes), rounding
        self._layout = Layout(nodes, space)
        self._depth = depths(self._nodes)
        self._made = {node.out: node for node in nodes}
        self._results = list(results)
        self._exported = {v.node.out for v in results if v.node is not None}
        self._roots = self._choose_roots()
        self._tensors: dict[Value, ir.Value] = {}
        self._arguments: dict[tuple[Value, Cut | None, tuple[AnySize, ...]], ir.Value] = {}
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
        """The nodes whose results are written to a tensor."""
        gathered = {a.base for node in self._nodes for a in node.accesses if a.gathers}
        self._roots = {n for n in self._nodes if n.reduce or n.out in self._exported or n.out in gathered}
        while True:
            nests: dict[Node, list[Nest]] = {}
            for nest in self._nests():
                for node in self._inlined(nest):
                    nests.setdefault(node, []).append(nest)
            more = {
                node
                for node, users in nests.items()
                if node.heavy
                and node not in self._roots
                and (len(users) > 1 or users[0].domain != self._layout.domain(node))
            }
            if not more:
                return self._roots
            self._roots |= more

    def _nests(self) -> list[Nest]:
        """The ops in order: by the reductions before them, smaller nests first, reductions last."""
        found: dict[tuple[int, tuple[int, ...], int, tuple[int, ...]], Nest] = {}
        for node in self._nodes:
            if node in self._roots:
                domain = self._layout.domain(node)
                before = self._depth[node.out] - bool(node.reduce)
                key = (before, tuple(sorted(self._layout.reduced(node))), len(domain), domain)
                found.setdefault(key, Nest([], domain)).nodes.append(node)
        return [found[key] for key in sorted(found)]

    def _inlined(self, nest: Nest) -> list[Node]:
        """The nodes that a nest computes, its own included."""
        found: dict[Node, None] = {}

        def visit(node: Node) -> None:
            for access in node.accesses:
                inner = None if access.gathers else self._made.get(access.base)
                if (
                    inner is not None
                    and inner not in found
                    and (inner not in self._roots or inner in nest.nodes)
                ):
                    visit(inner)
            found[node] = None

        for node in nest.nodes:
            if node not in found:
                visit(node)
        return list(found)

    def _loads(self, nest: Nest) -> list[tuple[Value, Tensor]]:
        """The tensors that a nest reads, and how."""
        found: dict[tuple[Value, Tensor], None] = {}
        computed = set(self._inlined(nest))
        for node in self._inlined(nest):
            for access in node.accesses:
                if not access.gathers and self._made.get(access.base) not in computed:
                    found[access.base, self._view(access)] = None
        return list(found)

    def _gathers(self, nest: Nest) -> list[Access]:
        """What a nest reads at indices that are computed."""
        return [access for node in self._inlined(nest) for access in node.accesses if access.gathers]

    def _view(self, access: Access) -> Tensor:
        node = self._made.get(access.base)
        return self._layout.made(node) if node is not None else self._layout.read(access)

    def write(self, block: ir.Block, shapes: Sequence[tuple[AnySize, ...]], loc: ir.Location) -> None:
        """Write all ops and the yield. ``shapes``: of the tensors among the block's arguments."""
        self._block, self._loc, self._context = block, loc, loc.context
        self._ip = ir.InsertionPoint(block)
        self._reshaper = Reshaper(self._index_of, self._ip, loc)
        tensors, numbers = list(block.arguments)[: len(shapes)], list(block.arguments)[len(shapes) :]
        given = dict(zip(self.inputs, zip(tensors, shapes, strict=True), strict=True))
        self._numbers = dict(zip(self.symbols, numbers, strict=True))
        for nest in self._nests():
            self._write_nest(nest, given)
        yielded = []
        for value in self._results:
            assert value.node is not None
            made = self._tensors[value.node.out]
            yielded.append(
                self._reshaper.reshape(made, self._layout.made(value.node).shape, value.type.shape)
            )
        yield_values(yielded, loc=loc, ip=self._ip)

    def _index_of(self, size: AnySize) -> ir.Value:
        """A symbolic size as an index."""
        if size not in self._sizes:
            index = ir.IndexType.get(self._context)

            def constant(number: int) -> ir.Value:
                value = {"value": ir.IntegerAttr.get(index, number)}
                return ir.Operation.create(
                    "arith.constant", [index], [], value, loc=self._loc, ip=self._ip
                ).result

            def joined(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
                return ir.Operation.create(name, [index], [a, b], loc=self._loc, ip=self._ip).result

            times, plus = partial(joined, "arith.muli"), partial(joined, "arith.addi")
            self._sizes[size] = evaluate(size, self._numbers.__getitem__, constant, times, plus)
        return self._sizes[size]

    def _write_nest(self, nest: Nest, given: dict[Value, Given]) -> None:
        loads = self._loads(nest)
        ins = [self._tensors[v] if v in self._made else self._argument(v, t, given) for v, t in loads]
        tables = {a: self._table(a, given) for a in self._gathers(nest)}
        views = [self._layout.made(node) for node in nest.nodes]
        types = [self._tensor_type(node, view.shape) for node, view in zip(nest.nodes, views, strict=True)]
        outs = [
            self._empty(n, type_, view.shape) for n, type_, view in zip(nest.nodes, types, views, strict=True)
        ]
        unread = self._unread(nest, [*(t for _, t in loads), *views])
        ins += [self._extent(tensor) for tensor in unread]
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
        """What says how long the loops are that no tensor of the nest has."""
        missing = tuple(loop for loop in nest.domain if not any(loop in tensor.loops for tensor in tensors))
        return [Tensor(tuple(self._layout.sizes[loop] for loop in missing), missing)] if missing else []

    def _extent(self, tensor: Tensor) -> ir.Value:
        type_ = builtin_type(TensorType(tensor.shape, torch.bool), self._context)
        sizes = [self._index_of(n) for n in dynamic(tensor.shape)]
        return ir.Operation.create("tensor.empty", [type_], sizes, loc=self._loc, ip=self._ip).result

    def _table(self, access: Access, given: dict[Value, Given]) -> ir.Value:
        made = access.base in self._made
        return (
            self._tensors[access.base]
            if made
            else self._argument(access.base, self._layout.table(access), given)
        )

    def _element(
        self, s: Scalars, table: ir.Value, access: Access, domain: Sequence[int], index: Scalar
    ) -> Scalar:
        """The element of ``access`` at ``index``."""
        loops = self._layout.table(access).loops
        positions = [s.position(index if loop is None else domain.index(loop)) for loop in loops]
        return s.extract(table, positions, self._memory(access.base))

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
        read = {
            load: s.load(argument, self._memory(load[0]))
            for load, argument in zip(loads, arguments, strict=False)
        }
        values: dict[Value, Scalar] = {}
        computed = self._inlined(nest)
        for node in computed:
            terms: list[Any] = []
            for a in node.accesses:
                if a.gathers:
                    terms.append(partial(self._element, s, tables[a], a, nest.domain))
                else:
                    terms.append(values[a.base] if a.base in values else read[a.base, self._view(a)])
            if node.indices:
                terms += [self._index(s, steps, nest.domain) for steps in self._layout.place(node)]
            s.compute = node.dtype
            if node.reduce:
                accumulator = Scalar(arguments[inputs + nest.nodes.index(node)], node.dtype)
                term, *others = (s.cast(t, node.dtype) for t in terms)
                for other in others:
                    term = s.mul(term, other)
                values[node.out] = _COMBINE[node.reduce](s, term, accumulator)
            else:
                assert node.compute is not None
                values[node.out] = s.cast(node.compute(s, *terms), self._held(node))
        stored = [s.store(values[node.out], self._memory(node.out)) for node in nest.nodes]
        ir.Operation.create("linalg.yield", [], stored, loc=self._loc, ip=ir.InsertionPoint(region))

    def _index(self, s: Scalars, steps: Sequence[Step], domain: Sequence[int]) -> Scalar:
        """The sum of ``steps``, i64."""
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
        """The dtype in which a node's value goes from op to op inside the kernel."""
        dtype = node.out.type.dtype
        narrow = dtype.is_floating_point and dtype.itemsize == 2
        return node.dtype if narrow and self._rounding == "fused" and node.dtype == torch.float32 else dtype

    def _memory(self, value: Value) -> torch.dtype:
        """The dtype in which a value is written to a tensor."""
        node = self._made.get(value)
        return value.type.dtype if node is None or value in self._exported else self._held(node)

    def _argument(self, value: Value, tensor: Tensor, given: dict[Value, Given]) -> ir.Value:
        key = (value, tensor.cut, tensor.shape)
        if key not in self._arguments:
            part, shape = given[value]
            if tensor.cut is not None:
                part = self._reshaper.reshape(part, shape, tuple(size for size, *_ in tensor.cut))
                part = self._reshaper.cut_out(part, [kept for _, *kept in tensor.cut])
                shape = tuple(count for _, _, count, _ in tensor.cut)
            self._arguments[key] = self._reshaper.reshape(part, shape, tensor.shape)
        return self._arguments[key]

    def _tensor_type(self, node: Node, shape: tuple[AnySize, ...]) -> ir.Type:
        return builtin_type(TensorType(shape, self._memory(node.out)), self._context)

    def _empty(self, node: Node, type_: ir.Type, shape: tuple[AnySize, ...]) -> ir.Value:
        sizes = [self._index_of(n) for n in dynamic(shape)]
        made = ir.Operation.create("tensor.empty", [type_], sizes, loc=self._loc, ip=self._ip).result
        if not node.reduce:
            return made
        element = ir.Type.parse(ELEMENTS[node.dtype], self._context)
        with self._loc:
            if node.dtype.is_floating_point:
                value: ir.Attribute = ir.FloatAttr.get(element, _START[node.reduce])
            else:
                bounds = torch.iinfo(node.dtype)
                value = ir.IntegerAttr.get(
                    element, {"sum": 0, "max": bounds.min, "min": bounds.max}[node.reduce]
                )
        start = ir.Operation.create(
            "arith.constant", [element], [], {"value": value}, loc=self._loc, ip=self._ip
        ).result
        sizes = ir.DenseI32ArrayAttr.get([1, 1], self._context)
        fill = ir.Operation.create(
            "linalg.fill",
            [type_],
            [start, made],
            {"operandSegmentSizes": sizes},
            regions=1,
            loc=self._loc,
            ip=self._ip,
        )
        region = fill.regions[0].blocks.append(element, element, arg_locs=[self._loc] * 2)
        ir.Operation.create(
            "linalg.yield", [], [region.arguments[0]], loc=self._loc, ip=ir.InsertionPoint(region)
        )
        return fill.result


_START = {"sum": 0.0, "max": -inf, "min": inf}
_COMBINE = {"sum": Scalars.add, "max": Scalars.maximum, "min": Scalars.minimum}
