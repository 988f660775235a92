"""Slices, concatenations and pads at bounds that depend on values, as places of a fixed dim."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import sympy
import torch
from torch.fx import Node
from torch.fx.node import Argument

from shardc.frontend.nodes import dim_at, list_at, node_at
from shardc.frontend.selected.rewriter import Rewriter, handles, with_dim
from shardc.frontend.selected.selection import Selection, Size, Span, Value, fixed, surely

aten = torch.ops.aten


@handles(aten.slice.Tensor)
def _slice(r: Rewriter, node: Node) -> Value:
    _, _, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 1 :])
    value = r.value(node.args[0])
    dim = dim_at(node, 1, len(value.dims))
    if value.dims[dim] is None and not any(isinstance(n, Node) for n in (start, end, step)):
        return with_dim(value, dim, None, r.call(node.target, value.node, dim, start, end, step))
    if step != 1:
        raise r.refused(node)
    chosen = _cut(r, value.dims[dim], value.shape[dim], node_at(node).meta["val"].shape[dim], start, end)
    return with_dim(value, dim, chosen)


@handles(aten.slice_backward.default)
def _slice_backward(r: Rewriter, node: Node) -> Value:
    value, (start, end, step) = r.value(node.args[0]), node.args[3:]
    dim = dim_at(node, 2, len(value.dims))
    size = node.meta["val"].shape[dim]
    if step != 1:
        raise r.refused(node)
    own = None if fixed(size) is not None else r.of_size(size)
    value = r.aligned(value, dim, _cut(r, own, own.size if own else size, size, start, end))
    return with_dim(value, dim, own, r.filled(value, [dim], 0))


def _cut(
    r: Rewriter, own: Selection | None, places: int, size: Size, start: Argument, end: Argument
) -> Selection:
    """Select elements ``start`` to ``end`` - 1 of a dim with ``size`` elements at ``places`` places."""
    given = [0 if start is None else _size(start), size if end is None else _size(end)]
    bounds = [size if surely(n >= size) else n for n in given]
    inside = all(surely(n >= 0) and surely(n <= size) for n in bounds)
    if inside and (own is None or own.span is not None):
        first = own.span[0] if own is not None and own.span is not None else 0
        return _between(r, places, *(first + r.expr(n) for n in bounds))

    def make() -> Selection:
        count = r.amount(sympy.Integer(places)) if own is None else r.count(own)
        order = r.places(places) if own is None else r.rank(own)
        low, high = (_from_front(r, n, count) for n in bounds)
        mask = _both(r, r.call(aten.ge.Tensor, order, low), r.call(aten.lt.Tensor, order, high))
        return r.selected(mask if own is None else _both(r, mask, own.mask))

    return r.once(("cut", own or places, *map(r.expr, bounds)), make)


def _size(bound: Argument) -> Size:
    size = bound.meta["val"] if isinstance(bound, Node) else bound
    assert isinstance(size, int | torch.SymInt)
    return size


def _from_front(r: Rewriter, bound: Size, count: Node) -> Node:
    """Return a bound as a number of elements; a negative bound counts from the end."""
    number = r.amount(r.expr(bound))
    zero = r.amount(sympy.Integer(0))
    wrapped = r.call(aten.add.Tensor, number, count)
    return r.call(aten.where.self, r.call(aten.lt.Tensor, number, zero), wrapped, number)


def _both(r: Rewriter, a: Node, b: Node) -> Node:
    return r.call(aten.bitwise_and.Tensor, a, b)


def _between(r: Rewriter, places: int, start: sympy.Expr, end: sympy.Expr) -> Selection:
    """Select the places from ``start`` to before ``end``."""

    def make() -> Selection:
        place = r.places(places)
        after = r.call(aten.ge.Tensor, place, r.amount(start))
        return r.selected(_both(r, after, r.call(aten.lt.Tensor, place, r.amount(end))), (start, end))

    return r.once(("between", places, start, end), make)


@handles(aten.cat.default)
def _cat(r: Rewriter, node: Node) -> Value:
    values = [r.value(source) for source in list_at(node, 0)]
    dim = dim_at(node, 1, len(values[0].dims))
    for other in range(len(values[0].dims)):
        if other != dim:
            values = r.matched(values, [other] * len(values))
    spans = _one_row(values, dim)
    if spans:
        return _put_together(r, values, dim, spans)
    made = r.call(node.target, [value.node for value in values], dim)
    if not any(value.dims[dim] for value in values):
        return with_dim(values[0], dim, None, made)
    masks = [_mask(r, value.dims[dim], value.shape[dim]) for value in values]
    return with_dim(values[0], dim, r.selected(r.call(aten.cat.default, masks, 0)), made)


def _mask(r: Rewriter, selection: Selection | None, size: int) -> Node:
    return selection.mask if selection else r.call(aten.full.default, [size], True, dtype=torch.bool)


def _one_row(values: Sequence[Value], dim: int) -> list[Span]:
    """Return the values' spans in one dim if each begins where the previous ends; else an empty list."""
    cuts = [cut for value in values if (cut := value.dims[dim]) is not None]
    spans = [cut.span for cut in cuts if cut.span is not None and cut.size == values[0].shape[dim]]
    is_row = len(spans) == len(values) and all(a[1] == b[0] for a, b in pairwise(spans))
    return spans if is_row else []


def _put_together(r: Rewriter, values: Sequence[Value], dim: int, spans: Sequence[Span]) -> Value:
    """Take each place from the value that has an element there."""
    node = values[-1].node
    for value in reversed(values[:-1]):
        cut = value.dims[dim]
        assert cut is not None
        node = r.call(aten.where.self, r.along(cut.mask, dim, len(value.dims)), value.node, node)
    return with_dim(values[0], dim, _between(r, values[0].shape[dim], spans[0][0], spans[-1][1]), node)


@handles(aten.constant_pad_nd.default)
def _pad(r: Rewriter, node: Node) -> Value:
    """Put a piece back among the places that it was cut from, or pad by a fixed number of elements."""
    value, pads = r.value(node.args[0]), list_at(node, 1)
    fill = node.args[2] if len(node.args) > 2 else 0
    assert isinstance(fill, int | float)
    widths = list(pads)
    for at in range(0, len(pads), 2):
        dim = len(value.dims) - 1 - at // 2
        selection, size = value.dims[dim], node.meta["val"].shape[dim]
        before = r.expr(_size(pads[at]))
        if selection is None and not any(isinstance(n, Node) for n in pads[at : at + 2]):
            continue
        if selection is None or selection.span is None or selection.span[0] != before:
            raise r.refused(node)
        if not surely(size == selection.size):
            raise r.refused(node)
        value = with_dim(value, dim, None, r.filled(value, [dim], fill))
        widths[at : at + 2] = [0, 0]
    if any(widths):
        value = Value(r.call(node.target, value.node, widths, fill), value.dims)
    return value
