"""Where a training graph is cut into forward and backward: what is saved in between, and what is computed
again.

Inside a kernel an elementwise op costs little, and a tensor that forward stores for it costs a pass over
memory in both graphs. Where ops stay calls of ATen, each would cost its time again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Target
from torch.utils.checkpoint import CheckpointPolicy

from shardc.frontend.nodes import node_at
from shardc.frontend.operators.attention_layout import layouts
from shardc.runtime.torch_private import OpOverload, functorch_config

aten = torch.ops.aten


def partition(joint: GraphModule, inputs: Sequence[object], **given: Any) -> tuple[GraphModule, GraphModule]:
    """AOTAutograd's cut of fewest bytes: what kernels compute along with their other work is not saved.

    That are pointwise ops, views and casts; matmuls, attention, convolutions, draws, sums of many elements
    and whatever no kernel can hold are saved. It is what TorchInductor saves. Equal calls stay apart here,
    ``torch-share`` makes them one.
    """
    from functorch.compile import min_cut_rematerialization_partition  # takes 0.2 s, in vain if all is cached

    for copy in layouts(joint.graph):  # the backward reads it, and not what it is a copy of
        copy.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for node in joint.graph.nodes:
        if node.target is aten.detach.default:  # marks a result that is saved; no view to the partitioner
            node.replace_all_uses_with(node_at(node), delete_user_cb=lambda user: user.op != "output")
        elif (shifted := shifted_by(node)) is not None:
            node.meta["recompute"] = shifted.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
        elif _is_read_by_norms(node):
            node.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
        elif isinstance(node.meta.get("val"), torch.Tensor) and _is_call(node.target):
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
    with functorch_config.patch(cse=False):  # which imports half of Inductor
        return min_cut_rematerialization_partition(joint, inputs, **given)


def _is_call(target: Target) -> bool:
    """Whether an op stays a call of ATen that computes something."""
    if not isinstance(target, OpOverload) or target.is_view:
        return False
    # not at the top: it loads MLIR, which a start from the caches does without
    from shardc.passes.fuse.lower.table import lowered_targets

    return str(target).removesuffix(".default") not in lowered_targets()


def log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """``_log_softmax`` in two steps, which lets a row's maximum and sum be saved, not a copy of the logits.

    As ATen's it makes contiguous tensors.
    """
    x = x.contiguous()
    wide = x.to(torch.float32) if half_to_float or x.dtype in (torch.bfloat16, torch.float16) else x
    shifted = wide if x.numel() == 0 else wide - wide.amax(dim, keepdim=True)
    result = shifted - shifted.exp().sum(dim, keepdim=True).log()
    return result if half_to_float else result.to(x.dtype)


def shifted_by(node: Node) -> Node | None:
    """The rows less their maximum that ``node`` is computed from as the last step of :func:`log_softmax`.

    Both take as many bytes as the logits. Saving the latter instead of them saves a maximum for each row, and
    costs a second tensor of that size while the forward makes it.
    """
    step = node
    for target in (aten.sub.Tensor, aten.log.default, aten.sum.dim_IntList, aten.exp.default):
        before = step.args[int(step is node)] if step.target is target else None
        if not isinstance(before, Node):
            return None
        step = before
    return step if step is node.args[0] and step.target is aten.sub.Tensor else None


_NORMS = {
    *(aten.native_layer_norm.default, aten.native_layer_norm_backward.default),
    *(aten.native_group_norm.default, aten.native_group_norm_backward.default),
}


def _is_read_by_norms(node: Node) -> bool:
    """Whether ``node`` is a function of one tensor's elements that norms alone read, and compute in passing.

    The partitioner takes them for calls that need it in memory.
    """
    return (
        isinstance(node.target, OpOverload)
        and torch.Tag.pointwise in node.target.tags
        and len(node.all_input_nodes) == 1
        and not _is_call(node.target)
        and bool(node.users)
        and all(user.target in _NORMS for user in node.users)
    )


SAVING = {aten._log_softmax.default: log_softmax}
"""Decompositions that leave less to be saved."""
