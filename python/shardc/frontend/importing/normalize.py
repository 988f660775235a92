"""Normalizes arguments of ATen calls: dims and indices count from the front, and devices are dropped."""

from __future__ import annotations

import functools

import torch
from torch.fx import Node
from torch.fx.node import Argument

from shardc.frontend.nodes import list_at, node_at, operator_of
from shardc.runtime.torch_private import OpOverload, schema_of

aten = torch.ops.aten

_DIM_NAMES = {"dim", "dims", "dim0", "dim1", "dim2", "start_dim", "end_dim"}
_PLACEMENT = {"device", "layout", "pin_memory", "non_blocking"}
# Their dims refer to the result, which has one dim more.
_ADDS_DIM = {aten.unsqueeze.default, aten.stack.default}


def normalize_arguments(node: Node) -> None:
    """Rewrite the arguments of one call in place; the op stays the same."""
    if not isinstance(node.target, OpOverload):
        return
    if _PLACEMENT & node.kwargs.keys():
        node.kwargs = {key: value for key, value in node.kwargs.items() if key not in _PLACEMENT}
    positions = _dim_positions(node.target)
    if positions:
        rank = _rank(node)
        args = list(node.args)
        for position in positions:
            if position < len(args):
                args[position] = _from_front(args[position], rank)
        node.args = tuple(args)
        node.kwargs = {k: _from_front(v, rank) if k in _DIM_NAMES else v for k, v in node.kwargs.items()}
    if node.target in (aten.select.int, aten.select_scatter.default, aten.select_backward.default):
        _index_from_front(node)


@functools.cache
def _dim_positions(target: OpOverload) -> tuple[int, ...]:
    return tuple(
        position
        for position, argument in enumerate(schema_of(target).arguments)
        if argument.name in _DIM_NAMES and "int" in str(argument.type)
    )


def _rank(node: Node) -> int:
    """Return the rank of the tensor that the call's dims refer to; 1 for a 0-d tensor, as in torch."""
    names = _names(operator_of(node))
    if "input_sizes" in names:
        return len(list_at(node, names.index("input_sizes")))
    first = node.args[0]
    first = first[0] if isinstance(first, list | tuple) else first
    rank = first.meta["val"].dim() if isinstance(first, Node) else 0
    return max(1, rank + (node.target in _ADDS_DIM))


def _names(target: OpOverload) -> list[str]:
    return [argument.name for argument in schema_of(target).arguments]


def _from_front(dims: Argument, rank: int) -> Argument:
    if isinstance(dims, (list, tuple)):
        return [_from_front(dim, rank) for dim in dims]
    return dims % rank if isinstance(dims, int) and not isinstance(dims, bool) else dims


def _index_from_front(node: Node) -> None:
    names = _names(operator_of(node))
    place = names.index("index")
    if len(node.args) <= place:
        return
    index, dim = node.args[place], node.args[names.index("dim")]
    if isinstance(index, int) and isinstance(dim, int) and index < 0:
        sizes = list_at(node, 1) if "input_sizes" in names else node_at(node).meta["val"].shape
        size = sizes[dim]
        assert isinstance(size, int | torch.SymInt)
        node.args = (*node.args[:place], index + size, *node.args[place + 1 :])
