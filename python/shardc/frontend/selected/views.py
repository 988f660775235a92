"""Views: the same elements with other dims."""

from __future__ import annotations

import math
from collections.abc import Sequence

import sympy
import torch
from torch.fx import Node

from shardc.frontend.nodes import dim_at, list_at, node_at
from shardc.frontend.selected.rewriter import Rewriter, handles
from shardc.frontend.selected.selection import Selection, Size, Value, fixed

aten = torch.ops.aten


@handles(aten.t.default, aten.transpose.int, aten.permute.default)
def _permute(r: Rewriter, node: Node) -> Value:
    value = r.value(node.args[0])
    rank = len(value.dims)
    order = list(range(rank))
    if node.target is aten.permute.default:
        order = [d % rank for d in list_at(node, 1) if isinstance(d, int)]
    elif rank > 1:
        is_t = node.target is aten.t.default
        a, b = (0, 1) if is_t else (dim_at(node, 1, rank), dim_at(node, 2, rank))
        order[a], order[b] = b, a
    return Value(r.call(node.target, value.node, *node.args[1:]), tuple(value.dims[d] for d in order))


@handles(aten.unsqueeze.default)
def _unsqueeze(r: Rewriter, node: Node) -> Value:
    value, dim = r.value(node.args[0]), dim_at(node, 1, len(node.meta["val"].shape))
    return Value(r.call(node.target, value.node, dim), (*value.dims[:dim], None, *value.dims[dim:]))


@handles(aten.select.int)
def _select(r: Rewriter, node: Node) -> Value:
    value, index = r.value(node.args[0]), node.args[2]
    dim = dim_at(node, 1, len(value.dims))
    if value.dims[dim] is not None or not isinstance(index, int):
        raise r.refused(node)
    if value.node in r.columns and dim == 1:
        return Value(r.columns[value.node][index], value.dims[:1])
    return Value(r.call(node.target, value.node, dim, index), (*value.dims[:dim], *value.dims[dim + 1 :]))


@handles(aten.expand.default)
def _expand(r: Rewriter, node: Node) -> Value:
    value, sizes = r.value(node.args[0]), node.meta["val"].shape
    dims: list[Selection | None] = [None] * (len(sizes) - len(value.dims)) + list(value.dims)
    shape = [1] * (len(sizes) - len(value.dims)) + list(value.shape)
    for dim, size in enumerate(sizes):
        if shape[dim] == 1 and dims[dim] is None:
            made = dims[dim] = None if fixed(size) is not None else r.of_size(size)
            shape[dim] = size if made is None else made.size
    return Value(r.call(node.target, value.node, shape), tuple(dims))


@handles(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def _view(r: Rewriter, node: Node) -> Value:
    """Merge and split dims group by group; at most one dim of a group depends on values."""
    value = r.value(node.args[0])
    before, after = node_at(node).meta["val"].shape, node.meta["val"].shape
    shape: list[int] = []
    dims: list[Selection | None] = []
    if len(after) == 1 and len(r.columns.get(value.node, ())) == 1:
        return Value(r.columns[value.node][0], value.dims[:1])
    for old, new in _groups([r.expr(n) for n in before], [r.expr(n) for n in after]):
        made = _regrouped(r, value, old, [after[d] for d in new])
        shape += made[0]
        dims += made[1]
    return Value(r.view(value.node, shape), tuple(dims))


def _groups(before: list[sympy.Expr], after: list[sympy.Expr]) -> list[tuple[list[int], list[int]]]:
    """Pair the dims of two shapes with equal numbers of elements, in the smallest such groups."""
    found = []
    i = j = 0
    while i < len(before) or j < len(after):
        first, have, want = (i, j), sympy.Integer(1), sympy.Integer(1)
        if i < len(before) and j < len(after):
            have, want, i, j = before[i], after[j], i + 1, j + 1
        while have != want or (i == first[0] and j == first[1]):
            if i < len(before) and (j == len(after) or _is_shorter(have, want)):
                have, i = have * before[i], i + 1
            else:
                want, j = want * after[j], j + 1
        found.append((list(range(first[0], i)), list(range(first[1], j))))
    return found


def _is_shorter(have: sympy.Expr, want: sympy.Expr) -> bool:
    """Return whether ``want`` is a multiple of ``have``, not the reverse; for numbers, if it is larger."""
    if have.is_Integer and want.is_Integer:
        return bool(have < want)
    return sympy.fraction(sympy.cancel(want / have))[1] == 1


def _regrouped(
    r: Rewriter, value: Value, old: list[int], sizes: Sequence[Size]
) -> tuple[list[int], list[Selection | None]]:
    """Return fixed shape and selections of the dims that a group becomes."""
    open_dims = [d for d, size in enumerate(sizes) if fixed(size) is None]
    shape = [fixed(size) or 0 for size in sizes]
    dims: list[Selection | None] = [None] * len(sizes)
    selected = [(d, own) for d in old if (own := value.dims[d]) is not None]
    places = math.prod(value.shape[d] for d in old)
    if not open_dims and not selected:
        return shape, dims
    if len(open_dims) != 1 or len(selected) > 1:
        raise r.refused(r.node)
    at = open_dims[0]
    in_front, behind = math.prod(shape[:at]), math.prod(shape[at + 1 :])
    shape[at] = places // max(in_front * behind, 1)
    for dim, own in selected:
        before = math.prod(value.shape[d] for d in old if d < dim) * own.before
        after = math.prod(value.shape[d] for d in old if d > dim) * own.after
        if not in_front or not behind or before % in_front or after % behind:
            raise r.refused(r.node)
        dims[at] = r.repeated(own.origin or own, before // in_front, after // behind)
    return shape, dims
