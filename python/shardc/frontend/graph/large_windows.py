"""Pools over large windows, dim by dim: maxima of nine by nine are those of nine rows, then of nine columns.

A kernel reads all elements of a window for each result, at most 32 of them. Windows of one dim read 18
elements instead of 81. A longer window of one dim is covered by shorter ones.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from math import inf, prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.node import Argument

from shardc.frontend.importing.cleanup import replace_by
from shardc.frontend.nodes import node_at
from shardc.frontend.operators import Table

aten = torch.ops.aten
MAX_WINDOW, LARGE_MAXIMUM = 32, 8
"""Most elements of a window that a kernel reads for each result, and of one whose maximum it finds faster by
reading all. Means of three by three take as long in both forms."""
_FLOATS = (torch.float32, torch.float64)
"""Dtypes whose means are not rounded between two dims."""
_MEANS = {2: aten.avg_pool2d.default, 3: aten.avg_pool3d.default}
_MEAN_GRADIENTS = {2: aten.avg_pool2d_backward.default, 3: aten.avg_pool3d_backward.default}
_MAXIMA = {2: aten.max_pool2d_with_indices.default, 3: aten.max_pool3d_with_indices.default}
_ADAPTIVE = {2: aten.adaptive_max_pool2d.default, 3: aten.adaptive_max_pool3d.default}
Sizes = Sequence[int]


def large_window_table() -> Table:
    """Return the decompositions of average pools, and of adaptive maxima whose windows are equal."""
    table: Table = {}
    for rank in (2, 3):
        table[_MEANS[rank]] = _Mean(rank).forward
        table[_MEAN_GRADIENTS[rank]] = _Mean(rank).backward
        table[_ADAPTIVE[rank]] = _AdaptiveMaximum(rank).forward
    return table


class _Mean:
    """Average pools along one of ``rank`` dims after the other: the count of a window is a product."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def forward(
        self,
        x: Tensor,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        ceil: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        if divisor_override or not self._is_large(x, kernel):
            return NotImplemented
        for k, s, p in _along(self._rank, kernel, stride or kernel, padding):
            x = _MEANS[self._rank](x, k, s, p, ceil, count_include_pad)
        return x

    def backward(
        self,
        grad: Tensor,
        x: Tensor,
        kernel: Sizes,
        stride: Sizes,
        padding: Sizes,
        ceil: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        if divisor_override or not self._is_large(x, kernel):
            return NotImplemented
        steps, shapes = list(_along(self._rank, kernel, stride or kernel, padding)), [list(x.shape)]
        for d in range(x.dim() - self._rank, x.dim() - 1):  # the shapes of what each pool reads
            shapes.append([*shapes[-1][:d], grad.shape[d], *shapes[-1][d + 1 :]])
        for (k, s, p), shape in zip(reversed(steps), reversed(shapes), strict=True):
            read = grad.new_empty(shape)  # only its shape is used
            grad = _MEAN_GRADIENTS[self._rank](grad, read, k, s, p, ceil, count_include_pad, None)
        return grad

    def _is_large(self, x: Tensor, kernel: Sizes) -> bool:
        known = all(isinstance(n, int) for n in x.shape) and x.dtype in _FLOATS
        each = _of_each(kernel, self._rank)
        return known and prod(each) > MAX_WINDOW >= max(each)


class _AdaptiveMaximum:
    """Maxima of ``rank`` dims and their indices; windows of unequal sizes stay."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def forward(self, x: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
        pairs = list(zip(x.shape[-self._rank :], sizes, strict=True))
        if not all(isinstance(n, int) and n and size and not n % size for n, size in pairs):
            return NotImplemented
        kernel = [n // size for n, size in pairs]
        return _MAXIMA[self._rank](x, kernel, kernel)


def separate_maxima(graph: Graph) -> None:
    """Rewrite maxima of more than LARGE_MAXIMUM elements whose indices are not read, dim by dim.

    Windows that cover all pixels become a reduction.
    """
    for node in list(graph.nodes):
        rank = next((rank for rank, target in _MAXIMA.items() if node.target is target), None)
        if rank is None or any(user.args[1] != 0 for user in node.users):
            continue
        made = _maximum(graph, node, rank)
        if made is not None:
            for user in list(node.users):
                made.meta["val"] = user.meta["val"]  # strides that callers rely on
                replace_by(user, made)
            graph.erase_node(node)


Pool = tuple[int, int, int, int]
"""Window, stride, padding and dilation of a pool along one dim."""


def _maximum(graph: Graph, node: Node, rank: int) -> Node | None:
    """Return the maxima of ``node``, or None if they stay as they are."""
    x = node_at(node)
    value = x.meta["val"]
    stride, padding, dilation, ceil = (*node.args[2:], *((), 0, 1, False)[len(node.args) - 2 :])
    kernel = _of_each(node.args[1], rank)
    padded = _of_each(padding, rank)
    dims = zip(kernel, _of_each(stride or kernel, rank), padded, _of_each(dilation, rank), strict=True)
    known = value.is_floating_point() and all(isinstance(n, int) for n in value.shape)
    if prod(kernel) <= LARGE_MAXIMUM or MAX_WINDOW >= max(kernel) == prod(kernel) or not known:
        return None
    with graph.inserting_before(node):
        if value.shape[-rank:] == torch.Size(kernel) and not any(padded):
            return _call(graph, node, aten.amax.default, x, list(range(-rank, 0)), True)
        pools = [_covering(pool, bool(ceil)) for pool in dims]
        if not all(pools):
            return None
        for d, (pad, *shorter) in enumerate(found for found in pools if found is not None):
            if pad[2]:
                around = [0, 0] * (rank - d - 1) + [pad[2]] * 2
                x = _call(graph, node, aten.constant_pad_nd.default, x, around, -inf)
            for pool in shorter:
                pair = _call(graph, node, _MAXIMA[rank], x, *_in_dim(d, rank, pool), bool(ceil))
                x = _call(graph, node, operator.getitem, pair, 0)
    return x


_NONE: Pool = (1, 1, 0, 1)
"""Pool that changes nothing."""


def _covering(pool: Pool, ceil: bool) -> list[Pool] | None:
    """Return the pad that comes first, and pools of at most MAX_WINDOW elements, as a pool; else None.

    Of the pools with windows ``a`` and ``b``, the second one reads every ``d``-th result of the first one.
    Together they cover ``a + (b - 1) * d`` elements.
    """
    window, stride, padding, holes = pool
    if window <= MAX_WINDOW:
        return [_NONE, pool] if pool != _NONE else [_NONE]
    if ceil:
        return None
    shorter = range(2, MAX_WINDOW + 1)
    if stride == window and not padding and holes == 1:
        blocks = [(a, window // a) for a in shorter if window % a == 0 and window // a <= MAX_WINDOW]
        return [_NONE, *((n, n, 0, 1) for n in min(blocks, key=sum))] if blocks else None
    pairs = [(a, b, (window - a) // (b - 1)) for b in shorter for a in shorter if not (window - a) % (b - 1)]
    fits = [(a, b, d) for a, b, d in pairs if d <= a]
    if not fits:
        return None
    a, b, d = min(fits, key=sum)
    return [(1, 1, padding, 1), (a, 1, 0, holes), (b, stride, 0, d * holes)]


def _along(rank: int, *sizes: Sizes | int) -> Iterator[list[list[int]]]:
    """Yield ``sizes`` (kernel, stride, padding) for each dim alone, if its pool changes something."""
    each = [_of_each(n, rank) for n in sizes]
    for d in range(rank):
        yield _in_dim(d, rank, [n[d] for n in each])


def _in_dim(d: int, rank: int, pool: Sizes) -> list[list[int]]:
    """Return the sizes of a pool along dim ``d`` only, each for all dims."""
    return [[n if at == d else rest for at in range(rank)] for n, rest in zip(pool, _NONE, strict=False)]


def _of_each(numbers: Any, rank: int) -> list[int]:
    """Return an argument of a pool, a number or a list, as a number for each of ``rank`` dims."""
    listed = list(numbers) if isinstance(numbers, Sequence) else [numbers]
    return listed * rank if len(listed) == 1 else listed


def _call(graph: Graph, like: Node, target: Callable[..., object], *args: Argument) -> Node:
    """Return a new call at the place of ``like`` in the source."""
    made = graph.call_function(target, args)
    values = (a.meta["val"] if isinstance(a, Node) else a for a in args)
    made.meta = {key: entry for key, entry in like.meta.items() if key != "tensor_meta"} | {
        "val": target(*values)
    }
    return made
