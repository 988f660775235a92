"""Splits a training graph into forward and backward: what forward saves, and what backward recomputes.

Inside a kernel, recomputing an elementwise op costs little, while a saved tensor costs a pass over memory in
both graphs. An op that stays an ATen call would cost its full time again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from shardc.dynamo.lowered import lowered
from shardc.dynamo.norms_again import read_norms_again
from shardc.frontend.graph.parts import join_parts
from shardc.frontend.nodes import node_at
from shardc.frontend.operators.attention_layout import layouts
from shardc.runtime.torch_private import OpOverload, functorch_config

aten = torch.ops.aten


def partition(joint: GraphModule, inputs: Sequence[object], **given: Any) -> tuple[GraphModule, GraphModule]:
    """Split the graph by AOTAutograd's minimum cut, saving only tensors that are costly to recompute.

    Pointwise ops, views and casts are recomputed inside kernels. Matmuls, attention, convolutions, random
    draws, sums of many elements and ops that no kernel can hold are saved. TorchInductor saves the same.
    Equal calls are not merged here; ``torch-share`` does that.
    """
    from functorch.compile import min_cut_rematerialization_partition  # 0.2 s, not needed if all is cached

    join_parts(joint.graph)
    for copy in layouts(joint.graph):  # the backward reads the copy, not its source
        copy.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for node in joint.graph.nodes:
        if node.target is aten.detach.default:  # marks a saved result; no view to the partitioner
            node.replace_all_uses_with(node_at(node), delete_user_cb=lambda user: user.op != "output")
        elif (shifted := shifted_by(node)) is not None:
            node.meta["recompute"] = shifted.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
        elif node.target in _MOVES or _is_read_by_norms(node) or _is_measured(node):
            node.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
        elif isinstance(node.meta.get("val"), torch.Tensor) and _is_call(node.target):
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
    read_norms_again(joint.graph, _is_call)
    with functorch_config.patch(cse=False):  # which imports half of Inductor
        return min_cut_rematerialization_partition(joint, inputs, **given)


def _is_call(target: object) -> bool:
    """Return whether an op computes something and stays an ATen call."""
    if not isinstance(target, OpOverload) or target.is_view:
        return False
    return str(target).removesuffix(".default") not in lowered()


def log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """Compute ``_log_softmax`` in two steps, so that rows' maxima and sums are saved, not the logits.

    Like ATen's, it returns contiguous tensors.
    """
    x = x.contiguous()
    wide = x.to(torch.float32) if half_to_float or x.dtype in (torch.bfloat16, torch.float16) else x
    shifted = wide if x.numel() == 0 else wide - wide.amax(dim, keepdim=True)
    result = shifted - shifted.exp().sum(dim, keepdim=True).log()
    return result if half_to_float else result.to(x.dtype)


def shifted_by(node: Node) -> Node | None:
    """Return the rows minus their maximum from which ``node`` is computed, if it ends :func:`log_softmax`.

    Both take as many bytes as the logits. Saving the shifted rows instead of the logits would save a maximum
    for each row, but the forward would hold a second tensor of that size.
    """
    step = node
    for target in (aten.sub.Tensor, aten.log.default, aten.sum.dim_IntList, aten.exp.default):
        before = step.args[int(step is node)] if step.target is target else None
        if not isinstance(before, Node):
            return None
        step = before
    return step if step is node.args[0] and step.target is aten.sub.Tensor else None


_MOVES = {
    *(aten.unfold.default, aten.im2col.default, aten.roll.default, aten.flip.default),
    aten.constant_pad_nd.default,
    *(getattr(aten, f"{kind}_pad{n}d").default for kind in ("reflection", "replication") for n in (1, 2, 3)),
}
"""Ops that move elements, which kernels read in place. Saved windows would be copied: they overlap."""
_NORMS = {
    *(aten.native_layer_norm.default, aten.native_layer_norm_backward.default),
    *(aten.native_group_norm.default, aten.native_group_norm_backward.default),
}


def _is_read_by_norms(node: Node) -> bool:
    """Return whether ``node`` is a pointwise function of one tensor that only norms read.

    Norms recompute it in their kernels. The partitioner takes them for calls that need it in memory.
    """
    return (
        _is_pointwise(node)
        and len(node.all_input_nodes) == 1
        and bool(node.users)
        and all(user.target in _NORMS for user in node.users)
    )


def _is_measured(node: Node) -> bool:
    """Return whether ``node`` is a pointwise result of which a vector's norm is taken, beside pointwise ops.

    The partitioner takes the norm for a call, too, and saves a difference of two inputs.
    """
    return (
        _is_pointwise(node)
        and any(user.target is aten.linalg_vector_norm.default for user in node.users)
        and all(user.target is aten.linalg_vector_norm.default or _is_pointwise(user) for user in node.users)
    )


def _is_pointwise(node: Node) -> bool:
    """Return whether ``node`` is a pointwise op that kernels may hold."""
    target = node.target
    return isinstance(target, OpOverload) and torch.Tag.pointwise in target.tags and not _is_call(target)


SAVING = {aten._log_softmax.default: log_softmax}
"""Decompositions that leave less to save."""
