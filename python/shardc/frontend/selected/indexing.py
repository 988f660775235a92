"""Reads and writes at places that depend on values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import sympy
import torch
from torch.fx import Node
from torch.fx.node import Argument

from shardc.frontend.nodes import dim_at, list_at, node_at
from shardc.frontend.selected.rewriter import Rewriter, handles, with_dim
from shardc.frontend.selected.selection import Selection, Value

aten = torch.ops.aten


def _chosen(r: Rewriter, mask: Node) -> tuple[Selection, int]:
    """Return the selection of a mask's flattened elements, and the mask's rank."""
    mask, rank = r.representative(mask), mask.meta["val"].dim()

    def make() -> Selection:
        flat = mask if mask.meta["val"].dtype == torch.bool else r.call(aten.ne.Scalar, mask, 0)
        return r.selected(flat if rank == 1 else r.view(flat, [flat.meta["val"].numel()]))

    return r.once(("mask", mask), make), rank


def _mask_of(r: Rewriter, value: Value, indices: Sequence[Argument]) -> tuple[int, Node] | None:
    """Return position and mask if the indices are one mask, or the coordinates of its elements.

    Raises SizeDependsOnValues for a mask among other indices.
    """
    given = [(i, n) for i, n in enumerate(indices) if isinstance(n, Node)]
    values = [r.values.get(n) for _, n in given]
    places = [r.own_places.get(v.node) if isinstance(v, Value) else None for v in values]
    if len(places) == len(indices) and places[0] is not None:
        mask = places[0][0]
        shape = tuple(mask.meta["val"].shape)
        if places == [(mask, dim) for dim in range(len(shape))] and value.shape[: len(shape)] == shape:
            return 0, mask
    masks = [(i, n) for i, n in given if n.meta["val"].dtype == torch.bool]
    if not masks:
        return None
    if len(given) > 1 or masks[0][1] in r.values:
        raise r.refused(r.node)
    return masks[0]


@handles(aten.nonzero.default)
def _nonzero(r: Rewriter, node: Node) -> Value:
    """Return each place's own coordinates."""
    mask = node_at(node)
    if mask in r.values:
        raise r.refused(node)
    selection, _ = _chosen(r, mask)
    shape = list(mask.meta["val"].shape)
    columns = []
    for dim, size in enumerate(shape):
        behind = math.prod(shape[dim + 1 :])
        place = r.call(aten.div.Tensor_mode, r.places(selection.size), behind, rounding_mode="floor")
        columns.append(r.call(aten.remainder.Scalar, place, size))
        r.own_places[columns[-1]] = r.representative(mask), dim
    made = r.call(aten.cat.default, [r.view(column, [selection.size, 1]) for column in columns], 1)
    r.columns[made] = columns
    return Value(made, (selection, None))


@handles(aten.masked_select.default)
def _masked_select(r: Rewriter, node: Node) -> Value:
    value, mask = r.value(node.args[0]), r.value(node.args[1])
    if value.shape != mask.shape or any((*value.dims, *mask.dims)):
        raise r.refused(node)
    return _masked(r, value, 0, mask.node)


@handles(aten.masked_scatter.default)
def _masked_scatter(r: Rewriter, node: Node) -> Value:
    """Take the selected elements from the source in order."""
    target, mask, source = (r.value(argument) for argument in node.args)
    if target.shape != mask.shape or any((*target.dims, *mask.dims)) or len(source.dims) != 1:
        raise r.refused(node)
    return _masked_put(r, target, 0, mask.node, source, False)


@handles(aten.gather.default)
def _gather(r: Rewriter, node: Node) -> Value:
    value, dim, index = _rows(r, node)
    return Value(r.call(node.target, value.node, dim, index.node), index.dims)


@handles(aten.scatter.value, aten.scatter.src, aten.scatter_add.default)
def _scatter(r: Rewriter, node: Node) -> Value:
    value, dim, index = _rows(r, node)
    source = node.args[3]
    if isinstance(source, Node):
        written = r.value(source)
        if written.dims != index.dims:
            raise r.refused(node)
        source = written.node
    return Value(r.call(node.target, value.node, dim, index.node, source), value.dims)


def _rows(r: Rewriter, node: Node) -> tuple[Value, int, Value]:
    """Return a tensor, a dim and indices along it; in all other dims both have the same elements."""
    value, index = r.value(node.args[0]), r.value(node.args[2])
    dim = dim_at(node, 1, len(value.dims))
    for other in range(len(value.dims)):
        if other != dim:
            value, index = r.matched([value, index], [other, other])
    if value.dims[dim] or index.dims[dim]:
        raise r.refused(node)
    return value, dim, Value(_numbers_of(r, index), index.dims)


def _numbers_of(r: Rewriter, index: Value) -> Node:
    """Return indices, with 0 at places without an element."""
    return r.filled(index, range(len(index.dims)), 0)


@handles(aten.index.Tensor)
def _index(r: Rewriter, node: Node) -> Value:
    value, indices = r.value(node.args[0]), list_at(node, 1)
    found = _mask_of(r, value, indices)
    if found is not None:
        return _masked(r, value, *found)
    numbers, selections = _numbers(r, value, indices)
    made = r.call(node.target, value.node, numbers)
    used = [i for i, number in enumerate(numbers) if number is not None]
    rest = [dim for i, dim in enumerate(value.dims) if i not in used]
    at = used[0] if used == list(range(used[0], used[-1] + 1)) else 0
    return Value(made, (*rest[:at], *selections, *rest[at:]))


def _masked(r: Rewriter, value: Value, at: int, mask: Node) -> Value:
    """Return ``value[mask]``: all of ``value``, with the mask's dims merged."""
    selection, rank = _chosen(r, mask)
    if any(value.dims[at : at + rank]):
        raise r.refused(r.node)
    dims = (*value.dims[:at], selection, *value.dims[at + rank :])
    shape = [*value.shape[:at], selection.size, *value.shape[at + rank :]]
    return Value(value.node if rank == 1 else r.view(value.node, shape), dims)


def _numbers(
    r: Rewriter, value: Value, indices: Sequence[Argument]
) -> tuple[list[Node | None], tuple[Selection | None, ...]]:
    """Return indices with the same places, and the selections of the dims that they make."""
    given = [i for i, index in enumerate(indices) if index is not None]
    if any(value.dims[i] for i in given):
        raise r.refused(r.node)
    made, selections = r.broadcast([r.value(indices[i]) for i in given])
    numbers = {i: _numbers_of(r, index) for i, index in zip(given, made, strict=True)}
    return [numbers.get(i) for i in range(len(indices))], selections


@handles(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(r: Rewriter, node: Node) -> Value:
    target, values = r.value(node.args[0]), r.value(node.args[2])
    indices, accumulate = list_at(node, 1), len(node.args) > 3 and bool(node.args[3])
    found = _mask_of(r, target, indices)
    if found is not None:
        return _masked_put(r, target, *found, values, accumulate)
    numbers, selections = _numbers(r, target, indices)
    used = [i for i, number in enumerate(numbers) if number is not None]
    if any(target.dims) or used != list(range(len(used))) or len(selections) != 1:
        raise r.refused(node)
    at = len(values.dims) - (len(target.dims) - len(used)) - 1
    selection = selections[0]
    if selection is not None and at >= 0 and (values.dims[at] or values.shape[at] != 1):
        values = r.aligned(values, at, selection)
    elif any(values.dims):
        raise r.refused(node)
    if selection is None:
        return r.whole(r.call(node.target, target.node, numbers, values.node, accumulate))
    # Places without an element write to an additional row, which is dropped afterwards.
    size = target.shape[0]
    longer = r.call(aten.constant_pad_nd.default, target.node, [0, 0] * (len(target.dims) - 1) + [0, 1])
    dropped = r.amount(sympy.Integer(size))
    first = r.call(aten.where.self, selection.mask, numbers[0], dropped)
    made = r.call(node.target, longer, [first, *numbers[1:]], values.node, accumulate)
    return r.whole(r.call(aten.slice.Tensor, made, 0, 0, size))


def _masked_put(r: Rewriter, target: Value, at: int, mask: Node, values: Value, accumulate: bool) -> Value:
    """Compute ``target[..., mask] = values``, or ``+=``, as a choice for each element."""
    selection, rank = _chosen(r, mask)
    before, chosen, after = target.shape[:at], target.shape[at : at + rank], target.shape[at + rank :]
    dim = len(values.dims) - len(after) - 1
    if dim >= 0 and (values.dims[dim] or values.shape[dim] != 1):
        values = r.aligned(values, dim, selection)
    if any(target.dims) or any(s for d, s in enumerate(values.dims) if d != dim):
        raise r.refused(r.node)
    placed = values.node
    if dim >= 0:
        places = chosen if values.dims[dim] else [1] * rank
        placed = r.view(placed, [*values.shape[:dim], *places, *values.shape[dim + 1 :]])
    if accumulate:
        placed = r.call(aten.add.Tensor, target.node, placed)
    here = r.view(selection.mask, [*(1 for _ in before), *chosen, *(1 for _ in after)])
    return r.whole(r.call(aten.where.self, here, placed, target.node))


@handles(aten.index_select.default)
def _index_select(r: Rewriter, node: Node) -> Value:
    value, index = r.value(node.args[0]), r.value(node.args[2])
    dim = dim_at(node, 1, len(value.dims))
    if value.dims[dim] is not None:
        raise r.refused(node)
    if (mask := _own_row(r, value, dim, index)) is not None:
        return _masked(r, value, dim, mask)
    return with_dim(value, dim, index.dims[0], r.call(node.target, value.node, dim, r.filled(index, [0], 0)))


@handles(aten.index_add.default)
def _index_add(r: Rewriter, node: Node) -> Value:
    target, index, source = (r.value(node.args[i]) for i in (0, 2, 3))
    dim = dim_at(node, 1, len(target.dims))
    if (mask := _own_row(r, target, dim, index)) is not None and not node.kwargs:
        return _masked_put(r, target, dim, mask, source, True)
    index, source = r.matched([index, source], [0, dim])
    if any(target.dims) or any(s for d, s in enumerate(source.dims) if d != dim):
        raise r.refused(node)
    numbers = r.filled(index, [0], 0)
    return r.whole(r.call(node.target, target.node, dim, numbers, r.filled(source, [dim], 0), **node.kwargs))


def _own_row(r: Rewriter, value: Value, dim: int, index: Value) -> Node | None:
    """Return the 1-d mask whose coordinates ``index`` holds, if it is as long as ``dim``."""
    mask, column = r.own_places.get(index.node, (None, 0))
    if mask is None or column != 0 or mask.meta["val"].shape != (value.shape[dim],):
        return None
    return mask


@handles(aten.embedding.default)
def _embedding(r: Rewriter, node: Node) -> Value:
    table, index = r.value(node.args[0]), r.value(node.args[1])
    made = r.call(node.target, table.node, _numbers_of(r, index), *node.args[2:])
    return Value(made, (*index.dims, None))


@handles(aten.embedding_dense_backward.default)
def _embedding_backward(r: Rewriter, node: Node) -> Value:
    grad, index = r.value(node.args[0]), r.value(node.args[1])
    for dim in range(len(index.dims)):
        grad, index = r.matched([grad, index], [dim, dim])
    whole = r.filled(grad, range(len(index.dims)), 0)
    return r.whole(r.call(node.target, whole, _numbers_of(r, index), *node.args[2:]))
