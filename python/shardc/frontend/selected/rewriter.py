"""The pass that rewrites every node with a symbolic size or value on tensors of fixed shape."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import sympy
import torch
from torch.fx import Graph, Node
from torch.fx.node import Argument, Target

from shardc.diagnostics.frontend import SizeDependsOnValues
from shardc.frontend.importing.cleanup import where_of
from shardc.frontend.importing.insertion import insert_before
from shardc.frontend.selected.selection import (
    Number,
    Selection,
    Size,
    Span,
    Value,
    equal_symbols,
    expr_of,
    fixed,
    is_symbolic,
    surely,
)
from shardc.runtime.torch_private import FakeTensor, pytree

aten = torch.ops.aten
T = TypeVar("T")
Made: TypeAlias = Value | Number | tuple[Value, ...]
Handler: TypeAlias = "Callable[[Rewriter, Node], Made | Node]"
HANDLERS: dict[object, Handler] = {}
"""Handlers by operator, or by a tag of many. A node that a handler returns has a fixed shape."""


def handles(*targets: object) -> Callable[[Handler], Handler]:
    """Register a handler for operators or tags."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(targets, handler))
        return handler

    return register


class Rewriter:
    """Walks a graph in order. ``call`` adds a node before the one that is being rewritten."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[Node, Made] = {}
        self.node = next(iter(graph.nodes))
        self.columns: dict[Node, list[Node]] = {}
        """Columns [n] of the coordinates [n, dims] of a mask's elements."""
        self.own_places: dict[Node, tuple[Node, int]] = {}
        """For a column of coordinates, its mask and its dim."""
        self._known: dict[object, Any] = {}
        self._by_size: dict[object, Selection] = {}
        self._amounts: dict[object, Node] = {}
        self._representative: dict[Node, Node] = {}
        self._by_call: dict[object, Node] = {}
        self._mode = next(v.fake_mode for n in graph.nodes if isinstance(v := n.meta.get("val"), FakeTensor))
        assert self._mode.shape_env is not None, "a trace with symbolic sizes has them"
        self._equal = equal_symbols(self._mode.shape_env)

    def run(self) -> None:
        """Rewrite the graph. Raises SizeDependsOnValues."""
        for node in list(self.graph.nodes):
            if node.op == "output":
                for source in node.all_input_nodes:
                    if source in self.values:
                        raise self.refused(source)
            elif node.op == "call_function" and self._is_touched(node):
                self.node = node
                self._rewrite(node)
            else:
                self._number(node)
        for node in reversed(list(self.graph.nodes)):
            if node in self.values:
                self.graph.erase_node(node)

    def _is_touched(self, node: Node) -> bool:
        return is_symbolic(node.meta.get("val")) or any(n in self.values for n in node.all_input_nodes)

    def _number(self, node: Node) -> None:
        """Give nodes with equal calls one representative, so that a mask computed twice is one mask."""
        leaves, tree = pytree.tree_flatten((node.args, node.kwargs))
        known = [(type(x), self.representative(x) if isinstance(x, Node) else x) for x in leaves]
        if node.op == "call_function":
            self._representative[node] = self._by_call.setdefault((node.target, str(tree), *known), node)

    def _rewrite(self, node: Node) -> None:
        kind = torch.Tag.pointwise if is_pointwise(node.target) else None
        handler = HANDLERS.get(node.target) or HANDLERS.get(kind)
        if handler is None or any(x in self.values for x in pytree.tree_leaves(dict(node.kwargs))):
            raise self.refused(node)
        made = handler(self, node)
        if isinstance(made, (Value, Node)):
            made = self._settled(made if isinstance(made, Value) else self.whole(made), node.meta["val"])
        elif isinstance(made, tuple):
            made = tuple(self._settled(*pair) for pair in zip(made, node.meta["val"], strict=True))
        elif isinstance(node.meta["val"], torch.SymInt):
            self._amounts.setdefault(self.expr(node.meta["val"]), made.node)
        self.values[node] = made
        if isinstance(made, Value) and not any(made.dims) and not is_symbolic(node.meta["val"]):
            del self.values[node]
            node.replace_all_uses_with(made.node)
            self.graph.erase_node(node)

    def _settled(self, value: Value, meant: torch.Tensor) -> Value:
        """Convert to the dtype of ``meant``, and drop the selection of each dim whose size is known."""
        if value.node.meta["val"].dtype != meant.dtype:
            value = Value(self.call(aten._to_copy.default, value.node, dtype=meant.dtype), value.dims)
        for dim, (selection, size) in enumerate(zip(value.dims, meant.shape, strict=True)):
            if selection is None:
                if not surely(size == value.shape[dim]):
                    raise self.refused(self.node)
                continue
            if surely(size == selection.size):
                value = with_dim(value, dim, None)
            elif (count := fixed(size)) is not None:
                value = self.compacted(value, dim, count)
            else:
                self._by_size.setdefault(self.expr(size), selection)
        return value

    # Methods for handlers.

    def representative(self, node: Node) -> Node:
        """Return the first node known to have the same value."""
        return self._representative.get(node, node)

    def expr(self, size: Size) -> sympy.Expr:
        """Return a size as an expression in which symbols known to be equal are merged."""
        expr = expr_of(size).xreplace(self._equal)
        assert isinstance(expr, sympy.Expr)
        return expr

    def refused(self, node: Node) -> SizeDependsOnValues:
        value = node.meta.get("val")
        shape = list(value.shape) if isinstance(value, torch.Tensor) else value
        return SizeDependsOnValues(op=str(node.target), shape=shape, where=where_of(node))

    def call(self, target: Target, *args: Argument, **kwargs: Argument) -> Node:
        return insert_before(self.node, target, args, kwargs, self._mode)

    def view(self, node: Node, shape: Sequence[int]) -> Node:
        if not node.meta["val"].is_contiguous():
            node = self.call(aten.clone.default, node, memory_format=torch.contiguous_format)
        return self.call(aten.view.default, node, list(shape))

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Return what ``make`` returned at the first request of this key."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def whole(self, node: Node) -> Value:
        return Value(node, (None,) * node.meta["val"].dim())

    def value(self, node: Argument) -> Value:
        """Return a tensor argument. Raises SizeDependsOnValues for anything else."""
        if not isinstance(node, Node):
            raise self.refused(self.node)
        found = self.values.get(node)
        if found is None and isinstance(node.meta["val"], torch.Tensor):
            return self.whole(node)
        if not isinstance(found, Value):
            raise self.refused(self.node)
        return found

    def number(self, argument: Argument) -> Argument:
        """Return a number that depends on values as a 0-d tensor, any other unchanged."""
        found = self.values.get(argument) if isinstance(argument, Node) else None
        return found.node if isinstance(found, Number) else argument

    def count(self, selection: Selection) -> Node:
        """Return the number of elements; i64 []."""
        return self.once(("count", selection), lambda: self.call(aten.sum.default, selection.mask))

    def amount(self, expr: sympy.Expr) -> Node:
        """Return a number in the trace's symbols; i64 []."""
        if expr.is_Integer:
            return self.once(expr, lambda: self.call(aten.full.default, [], int(expr), dtype=torch.int64))
        if expr in self._amounts:
            return self._amounts[expr]
        if expr in self._by_size:
            return self.count(self._by_size[expr])
        if not (expr.is_Add or expr.is_Mul):
            raise self.refused(self.node)
        op = aten.add.Tensor if expr.is_Add else aten.mul.Tensor
        terms = (term for term in expr.args if isinstance(term, sympy.Expr))
        return self.once(expr, lambda: functools.reduce(partial(self.call, op), map(self.amount, terms)))

    def places(self, size: int) -> Node:
        """Return the vector 0, 1, ... size - 1."""
        make = partial(self.call, aten.arange.start_step, 0, size, 1, dtype=torch.int64)
        return self.once(("places", size), make)

    def selected(self, mask: Node, span: Span | None = None) -> Selection:
        """Return the one selection of a mask, bool [n]."""
        size = mask.meta["val"].shape[0]
        return self.once(("selection", mask), lambda: Selection(size, mask, span))

    def of_size(self, size: Size) -> Selection:
        """Return the selection that made this size, repeated ``k`` times if the size is a multiple."""
        expr = self.expr(size)
        if expr in self._by_size:
            return self._by_size[expr]
        factor, symbol = expr.as_coeff_Mul()
        if symbol in self._by_size and factor.is_Integer:
            return self.repeated(self._by_size[symbol], 1, int(factor))
        raise self.refused(self.node)

    def repeated(self, selection: Selection, before: int, after: int) -> Selection:
        """Return the selection of a dim merged with ``before`` elements before and ``after`` after it."""
        root = selection.origin or selection
        before, after = before * selection.before, after * selection.after
        if before == after == 1:
            return root

        def make() -> Selection:
            mask = self.view(root.mask, [1, root.size, 1])
            mask = self.call(aten.expand.default, mask, [before, root.size, after])
            size = before * root.size * after
            return Selection(size, self.view(mask, [size]), None, root, before, after)

        return self.once(("repeated", root, before, after), make)

    def rank(self, selection: Selection) -> Node:
        """Return the number of elements before each place; i64 [size], -1 possible at a place without one."""

        def make() -> Node:
            count = self.call(aten._to_copy.default, selection.mask, dtype=torch.int64)
            return self.call(aten.sub.Tensor, self.call(aten.cumsum.default, count, 0), 1)

        return self.once(("rank", selection), make)

    def order(self, selection: Selection) -> Node:
        """Return the places of the elements, then the other places; i64 [size]."""

        def make() -> Node:
            free = self.call(aten.logical_not.default, selection.mask)
            free = self.call(aten._to_copy.default, free, dtype=torch.int64)
            both = self.call(aten.sort.stable, free, stable=True, dim=0, descending=False)
            return self.call(operator.getitem, both, 1)

        return self.once(("order", selection), make)

    def along(self, vector: Node, dim: int, rank: int) -> Node:
        """Reshape a vector to a tensor of that rank, along ``dim``."""
        size = vector.meta["val"].shape[0]
        return self.view(vector, [size if d == dim else 1 for d in range(rank)])

    def filled(self, value: Value, dims: Sequence[int], fill: float | bool) -> Node:
        """Return the tensor with ``fill`` wherever one of ``dims`` has no element."""
        node = value.node
        for dim in dims:
            selection = value.dims[dim]
            if selection is not None:
                number = self.call(aten.full.default, [], fill, dtype=node.meta["val"].dtype)
                mask = self.along(selection.mask, dim, len(value.dims))
                node = self.call(aten.where.self, mask, node, number)
        return node

    def compacted(self, value: Value, dim: int, count: int) -> Value:
        """Return the first ``count`` elements of a dim, which are all of its elements."""
        selection = value.dims[dim]
        assert selection is not None
        first = self.call(aten.slice.Tensor, self.order(selection), 0, 0, count)
        return with_dim(value, dim, None, self.call(aten.index_select.default, value.node, dim, first))

    def aligned(self, value: Value, dim: int, target: Selection) -> Value:
        """Move the elements of a dim to the places of another selection with as many."""
        own, size = value.dims[dim], value.shape[dim]
        if own is target:
            return value
        rank = self.call(aten.clamp.default, self.rank(target), 0, size - 1)
        if own is not None:
            rank = self.call(aten.index_select.default, self.order(own), 0, rank)
        return with_dim(value, dim, target, self.call(aten.index_select.default, value.node, dim, rank))

    def agreed(
        self, values: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[list[Value], Selection | None]:
        """Make values agree: their given dims (None: no dim) get the same elements at the same places."""
        present = [(v, d) for v, d in zip(values, dims, strict=True) if d is not None]
        selections = [own for v, d in present if (own := v.dims[d]) is not None]
        sizes = {v.shape[d] for v, d in present if v.dims[d] is None and v.shape[d] != 1}
        if not selections:
            return list(values), None
        count = next(iter(sizes)) if sizes else None
        made = list(values)
        for index, (value, dim) in enumerate(zip(values, dims, strict=True)):
            if dim is None or (value.dims[dim] is None and (count is not None or value.shape[dim] == 1)):
                continue
            if count is None:
                made[index] = self.aligned(value, dim, selections[0])
            elif value.shape[dim] == count:
                made[index] = with_dim(value, dim, None)  # every place holds an element
            else:
                made[index] = self.compacted(value, dim, count)
        return made, selections[0] if count is None else None

    def matched(self, values: Sequence[Value], dims: Sequence[int]) -> list[Value]:
        """Return values whose given dims have the same elements and the same selection."""
        made, selection = self.agreed(values, dims)
        return [with_dim(value, dim, selection) for value, dim in zip(made, dims, strict=True)]

    def broadcast(self, values: Sequence[Value]) -> tuple[list[Value], tuple[Selection | None, ...]]:
        """Make values agree in all dims where they meet, from the last on; return the selections, too."""
        made, rank = list(values), max(len(value.dims) for value in values)
        dims: list[Selection | None] = []
        for dim in range(rank):
            own = [dim - rank + len(value.dims) for value in made]
            made, selection = self.agreed(made, [d if d >= 0 else None for d in own])
            dims.append(selection)
        return made, tuple(dims)


def with_dim(value: Value, dim: int, selection: Selection | None, node: Node | None = None) -> Value:
    dims = list(value.dims)
    dims[dim] = selection
    return Value(node or value.node, tuple(dims))


@functools.cache
def is_pointwise(target: object) -> bool:
    return torch.Tag.pointwise in getattr(target, "tags", ())
