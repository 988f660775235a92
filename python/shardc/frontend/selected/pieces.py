"""Slices, concatenations and pads at bounds that depend on values: which places they are of one fixed dim."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import sympy
import torch
from torch.fx import Node

from shardc.frontend.selected.rewriter import Rewriter, handles, with_dim
from shardc.frontend.selected.selection import Selection, Value, fixed, surely

aten = torch.ops.aten


@handles(aten.slice.Tensor)
def _slice(r: Rewriter, node: Node) -> Value:
    source, dim, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 1 :])
    value = r.value(source)
    dim %= len(value.dims)
    if value.dims[dim] is None and not any(isinstance(n, Node) for n in (start, end, step)):
        return with_dim(value, dim, None, r.call(node.target, value.node, dim, start, end, step))
    if step != 1:
        raise r.refused(node)
    chosen = _cut(r, value.dims[dim], value.shape[dim], source.meta["val"].shape[dim], start, end)
    return with_dim(value, dim, chosen)


@handles(aten.slice_backward.default)
def _slice_backward(r: Rewriter, node: Node) -> Value:
    grad, _, dim, start, end, step = node.args
    value, size = r.value(grad), node.meta["val"].shape[dim]  # type: ignore[index]
    if step != 1:
        raise r.refused(node)
    own = None if fixed(size) is not None else r.of_size(size)
    dim %= len(value.dims)  # type: ignore[operator]
    value = r.aligned(value, dim, _cut(r, own, own.size if own else size, size, start, end))
    return with_dim(value, dim, own, r.filled(value, [dim], 0))


def _cut(r: Rewriter, own: Selection | None, places: int, size: Any, start: Any, end: Any) -> Selection:
    """From ``start`` to before ``end`` of the elements of a dim, which counts ``size`` of them at ``places``
    places.
    """
    bounds = [n.meta["val"] if isinstance(n, Node) else n for n in (0 if start is None else start, end)]
    bounds = [size if n is None or surely(n >= size) else n for n in bounds]
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


def _from_front(r: Rewriter, bound: Any, count: Node) -> Node:
    """A bound as a number of elements; a negative one counts from the end."""
    number = r.amount(r.expr(bound))
    zero = r.amount(sympy.Integer(0))
    wrapped = r.call(aten.add.Tensor, number, count)
    return r.call(aten.where.self, r.call(aten.lt.Tensor, number, zero), wrapped, number)


def _both(r: Rewriter, a: Node, b: Node) -> Node:
    return r.call(aten.bitwise_and.Tensor, a, b)


def _between(r: Rewriter, places: int, start: sympy.Expr, end: sympy.Expr) -> Selection:
    """The places from ``start`` to before ``end``."""

    def make() -> Selection:
        place = r.places(places)
        after, before = (
            r.call(aten.ge.Tensor, place, r.amount(start)),
            r.call(aten.lt.Tensor, place, r.amount(end)),
        )
        return r.selected(_both(r, after, before), (start, end))

    return r.once(("between", places, start, end), make)


@handles(aten.cat.default)
def _cat(r: Rewriter, node: Node) -> Value:
    values = [r.value(source) for source in node.args[0]]  # type: ignore[union-attr]
    dim = node.args[1] if len(node.args) > 1 else 0
    dim %= len(values[0].dims)  # type: ignore[operator]
    for other in range(len(values[0].dims)):
        if other != dim:
            values, selection = r.agreed(values, [other] * len(values))
            values = [with_dim(value, other, selection) for value in values]
    if _is_one_row(values, dim):
        return _put_together(r, values, dim)
    made = r.call(node.target, [value.node for value in values], dim)
    if not any(value.dims[dim] for value in values):
        return with_dim(values[0], dim, None, made)
    masks = [_mask(r, value.dims[dim], value.shape[dim]) for value in values]
    return with_dim(values[0], dim, r.selected(r.call(aten.cat.default, masks, 0)), made)


def _mask(r: Rewriter, selection: Selection | None, size: int) -> Node:
    return selection.mask if selection else r.call(aten.full.default, [size], True, dtype=torch.bool)


def _is_one_row(values: Sequence[Value], dim: int) -> bool:
    """Whether each begins where the one before it ends, at places of one dim."""
    cuts = [value.dims[dim] for value in values]
    spans = [
        cut.span
        for cut in cuts
        if cut is not None and cut.span is not None and cut.size == values[0].shape[dim]
    ]
    return len(spans) == len(cuts) and all(a[1] == b[0] for a, b in pairwise(spans))


def _put_together(r: Rewriter, values: Sequence[Value], dim: int) -> Value:
    """Each place from the value that has an element there."""
    node = values[-1].node
    for value in reversed(values[:-1]):
        cut = value.dims[dim]
        assert cut is not None
        node = r.call(aten.where.self, r.along(cut.mask, dim, len(value.dims)), value.node, node)
    start, end = values[0].dims[dim].span[0], values[-1].dims[dim].span[1]  # type: ignore[union-attr, index]
    return with_dim(values[0], dim, _between(r, values[0].shape[dim], start, end), node)


@handles(aten.constant_pad_nd.default)
def _pad(r: Rewriter, node: Node) -> Value:
    """A piece put back among the places it was cut from, or so many elements more on a side."""
    value, pads = r.value(node.args[0]), list(node.args[1])  # type: ignore[arg-type]
    fill = node.args[2] if len(node.args) > 2 else 0
    widths = list(pads)
    for at in range(0, len(pads), 2):
        dim = len(value.dims) - 1 - at // 2
        selection, size = value.dims[dim], node.meta["val"].shape[dim]
        before = r.expr(pads[at].meta["val"] if isinstance(pads[at], Node) else pads[at])
        if selection is None and not any(isinstance(n, Node) for n in pads[at : at + 2]):
            continue
        begins = selection is not None and selection.span is not None and selection.span[0] == before
        if not begins or not surely(size == selection.size):  # type: ignore[union-attr]
            raise r.refused(node)
        value = with_dim(value, dim, None, r.filled(value, [dim], fill))  # type: ignore[arg-type]
        widths[at : at + 2] = [0, 0]
    if any(widths):
        value = Value(r.call(node.target, value.node, widths, fill), value.dims)
    return value
