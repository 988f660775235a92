"""Cleans a raw trace: removes checks, aliases and identities, and leaves functional ops only.

With value semantics, `detach`, `alias` and most `clone` calls are identities. All factories become
``aten.full``, and sizes, dims and slice bounds are written out, so that later passes meet one form of each.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument

from shardc.diagnostics.frontend import UnsupportedOp, UnsupportedRandomOp
from shardc.frontend.importing.insertion import insert_before, tensors_for_numbers
from shardc.frontend.importing.normalize import normalize_arguments
from shardc.frontend.importing.recorder import FRAMES
from shardc.frontend.nodes import arguments, calls, dim_at, list_at, node_at
from shardc.runtime.torch_private import OpOverload, schema_of

aten = torch.ops.aten

_REPLACEMENT = "shardc_replacement"

# Ops with these prefixes are checks or profiling; they do not affect values.
_EFFECT_ONLY = ("profiler::", "aten::_assert", "aten::sym_constrain", "aten::record_stream")
_FACTORIES: dict[object, float] = {
    aten.zeros.default: 0,
    aten.zeros_like.default: 0,
    aten.new_zeros.default: 0,
    aten.ones.default: 1,
    aten.ones_like.default: 1,
    aten.new_ones.default: 1,
    # Elements of these are overwritten before they are read, or are padding: any number is valid.
    aten.empty.memory_format: 0,
    aten.empty_like.default: 0,
    aten.new_empty.default: 0,
    aten.empty_strided.default: 0,
    aten.new_empty_strided.default: 0,
    aten.empty_permuted.default: 0,
}


def clean(module: GraphModule) -> None:
    """Clean the graph of ``module`` in place.

    Raises UnsupportedOp or UnsupportedRandomOp for ops that cannot be imported.
    """
    graph = module.graph
    drop_effects(graph)
    # Detach the results meanwhile; otherwise each replaced node would rewrite the whole list.
    output, results = graph.output_node(), graph.output_node().args
    output.args = ()
    for node in calls(graph):
        _simplify(node)
    output.args = torch.fx.map_arg(results, _replacement)
    remove_dead_nodes(graph)
    for node in calls(graph):
        _check(node)


def drop_effects(graph: Graph) -> None:
    """Erase checks and profiling."""
    for node in calls(graph):
        if isinstance(node.target, OpOverload) and schema_of(node.target).name.startswith(_EFFECT_ONLY):
            node.replace_all_uses_with(None)  # type: ignore[arg-type]
            graph.erase_node(node)


def remove_dead_nodes(graph: Graph) -> None:
    """Erase all nodes without users, except placeholders.

    All ops are functional, so none must be kept for its effect.
    """
    for node in reversed(list(graph.nodes)):
        if node.op not in ("placeholder", "output") and not node.users:
            graph.erase_node(node)


def replace_by(node: Node, value: Node) -> None:
    """Replace all uses of ``node`` by ``value``, which is the same tensor."""
    node.meta[_REPLACEMENT] = value
    node.replace_all_uses_with(value)
    node.graph.erase_node(node)


def _replacement(node: Node) -> Node:
    """Return the node that finally replaces ``node``."""
    while _REPLACEMENT in node.meta:
        node = node.meta[_REPLACEMENT]
    return node


def where_of(node: Node) -> str | None:
    """Return ``file:line`` of the user's code that made the node."""
    frames = node.meta.get(FRAMES)
    return f"{frames[0][0]}:{frames[0][1]}" if frames else None


def _simplify(node: Node) -> None:
    if node.target in _FACTORIES:
        _make_full(node, _FACTORIES[node.target])
    elif node.target in (aten.full.default, aten.full_like.default, aten.fill.Scalar):
        _make_full(node, node.args[1])
    elif node.target is aten.new_full.default:
        _make_full(node, node.args[2])
    elif node.target is aten.scalar_tensor.default:
        _make_full(node, node.args[0])
    elif node.target in _IDENTITIES:
        replace_by(node, node_at(node))
    elif node.target in _SIMPLIFICATIONS:
        _SIMPLIFICATIONS[node.target](node)
    else:
        normalize_arguments(node)
        tensors_for_numbers(node)


def _make_full(node: Node, fill: Argument) -> None:
    value = node.meta["val"]
    if isinstance(fill, Node):
        return
    node.target = aten.full.default
    node.args = (list(value.shape), bool(fill) if value.dtype == torch.bool else fill)
    node.kwargs = {"dtype": value.dtype}


def _clone(node: Node) -> None:
    """Drop a clone unless it changes the memory layout for a later view."""
    source = node_at(node)
    if source.meta["val"].stride() == node.meta["val"].stride():
        replace_by(node, source)
    elif node.kwargs.get("memory_format") is None:
        node.kwargs = {"memory_format": torch.contiguous_format}


def _to_copy(node: Node) -> None:
    source, value = node_at(node), node.meta["val"]
    if source.meta["val"].dtype == value.dtype:
        node.target = aten.clone.default
        node.kwargs = {"memory_format": node.kwargs.get("memory_format")}
        _clone(node)
    else:
        # Drop the device: the program may run on another device than the trace.
        node.kwargs = {"dtype": value.dtype}


def _same_shape(node: Node) -> None:
    source = node_at(node)
    if source.meta["val"].shape == node.meta["val"].shape:
        replace_by(node, source)
        return
    if node.target in (aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default):
        node.target = aten.view.default
    node.args = (source, list(node.meta["val"].shape))
    node.kwargs = {}


def _transpose_twice(node: Node) -> None:
    source = node_at(node)
    if source.target is aten.t.default:
        replace_by(node, node_at(source))


def _copy(node: Node) -> None:
    """Replace ``copy(target, source)`` by the source in the target's shape and dtype."""
    source, value = node_at(node, 1), node.meta["val"]
    if source.meta["val"].dtype != value.dtype:
        source = insert_before(node, aten._to_copy.default, (source,), {"dtype": value.dtype})
    if source.meta["val"].shape != value.shape:
        source = insert_before(node, aten.expand.default, (source, list(value.shape)))
    replace_by(node, source)


def _as_strided(node: Node) -> None:
    """Drop a strided view of a whole tensor, as ``out=`` of a factory makes; others are rejected later."""
    source = 0 if node.target is aten.as_strided.default else 1
    value, (size, stride, *offset) = node_at(node).meta["val"], node.args[source + 1 :]
    assert isinstance(size, list | tuple) and isinstance(stride, list | tuple)
    same = value.shape == tuple(size) and value.stride() == tuple(stride)
    if same and value.is_contiguous() and (offset or [None])[0] in (None, value.storage_offset()):
        replace_by(node, node_at(node, source))


def _slice(node: Node) -> None:
    source = node_at(node)
    shape = source.meta["val"].shape
    _, _, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 1 :])
    dim = dim_at(node, 1, len(shape))
    start, end, step = slice(start, end, node.kwargs.get("step", step)).indices(shape[dim])
    if (start, step) == (0, 1) and end >= shape[dim]:
        replace_by(node, source)
        return
    node.args, node.kwargs = (source, dim, start, max(start, end), step), {}


def _strided_slice_backward(node: Node) -> None:
    """Normalize the gradient of a slice with a step; other slices have pads as gradients."""
    sizes = list_at(node, 1)
    dim = dim_at(node, 2, len(sizes))
    size = sizes[dim]
    assert isinstance(size, int)
    start, end, step = slice(*node.args[3:]).indices(size)
    node.args = (node.args[0], sizes, dim, start, max(start, end), step)


def _arange(node: Node) -> None:
    args = node.args
    start, end, step = {1: (0, *args, 1), 2: (*args, 1), 3: args}[len(args)]
    node.target = aten.arange.start_step
    node.args, node.kwargs = (start, end, step), {"dtype": node.meta["val"].dtype}


def _check(node: Node) -> None:
    target = node.target
    if target is operator.getitem:
        return
    if not isinstance(target, OpOverload):
        raise UnsupportedOp(op=str(target), reason="it is not an ATen or custom op", where=where_of(node))
    declared = schema_of(target)
    if _may_draw(target) and not any(a.name == "dropout_p" and given == 0 for a, given in arguments(node)):
        raise UnsupportedRandomOp(op=declared.name, detail="", where=where_of(node))
    if "as_strided" in declared.name:
        raise UnsupportedOp(op=str(target), reason="it addresses memory, not elements", where=where_of(node))
    if declared.is_mutable:
        raise UnsupportedOp(op=str(target), reason="it writes to its arguments", where=where_of(node))


@functools.cache
def _may_draw(target: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in target.tags


_IDENTITIES = {
    aten.detach.default,
    aten.alias.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
}
_SIMPLIFICATIONS: dict[object, Callable[[Node], None]] = {
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
    aten.view.default: _same_shape,
    aten.reshape.default: _same_shape,
    aten._unsafe_view.default: _same_shape,
    aten._reshape_alias.default: _same_shape,
    aten.expand.default: _same_shape,
    aten.t.default: _transpose_twice,
    aten.copy.default: _copy,
    aten.as_strided.default: _as_strided,
    aten.as_strided_scatter.default: _as_strided,
    aten.slice.Tensor: _slice,
    aten.slice_backward.default: _strided_slice_backward,
    aten.arange.default: _arange,
    aten.arange.start: _arange,
    aten.arange.start_step: _arange,
}
