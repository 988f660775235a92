"""A model's joint graph cut into forward and backward: what forward keeps, and what backward makes again from that.

Inside a kernel an elementwise op costs little, and a tensor that forward stores for it costs a pass over memory in both
graphs. So kernels get the cut that stores least (AOTAutograd's, as TorchInductor), in which ops that no kernel can hold
are never run twice. Where ops stay calls of ATen, each would cost its time again: forward keeps what it has made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.fx import GraphModule
from torch.utils.checkpoint import CheckpointPolicy


def partition_for_kernels(joint: GraphModule, inputs: Sequence[Any], **how: Any) -> tuple[GraphModule, GraphModule]:
    """Forward and backward of ``joint``; ``how`` is what AOTAutograd says of its inputs and outputs."""
    values = [node.meta.get("val") for node in joint.graph.nodes if node.op == "placeholder"]
    if not all(value.device.type == "cpu" for value in values if isinstance(value, torch.Tensor)):
        return default_partition(joint, inputs, **how)
    for node in joint.graph.nodes:
        if isinstance(node.meta.get("val"), torch.Tensor) and _is_call(node.target):
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
    return min_cut_rematerialization_partition(joint, inputs, **how)


def _is_call(target: Any) -> bool:
    """Whether an op stays a call of ATen that computes something."""
    if not isinstance(target, torch._ops.OpOverload) or target.is_view:
        return False
    # not at the top: it loads MLIR, which a start from the caches does without
    from shardc.passes.fuse.table import lowered_targets

    return str(target).removesuffix(".default") not in lowered_targets()
