"""Which attention of ``torch.compile``'s graphs is ``shardc::attention``, so that kernels and libraries
compete for it, and what is said of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from shardc.dynamo.explanations import is_explained, note_choices
from shardc.dynamo.settings import Settings
from shardc.dynamo.targets import graph_target


def attention_of_targets(settings: Settings, inputs: Sequence[Any]) -> AbstractContextManager[Any]:
    """Inside of it a graph of these inputs is traced with ``shardc::attention``, if its target has kernels of
    any attention and these are asked for; ``explain_fusion`` is told of each attention that stays PyTorch's.
    """

    def is_able(device: torch.device) -> bool:
        target = graph_target(settings, device)
        return target is not None and target.capabilities.any_attention

    kernels = settings.kernels
    wanted = kernels.is_measured if kernels.matmuls == "auto" else kernels.matmuls == "generated"
    devices = dict.fromkeys(value.device for value in inputs if isinstance(value, torch.Tensor))
    if not (wanted and any(map(is_able, devices))):
        return nullcontext()
    from shardc.frontend.graph.graph_attention import GraphAttention

    return GraphAttention(is_able, _note_left)


def _note_left(line: str | None, why: str) -> None:
    if not is_explained():
        return
    # not at the top: these load MLIR, which a start from the caches does without
    from shardc.passes.fuse.grouping.explain import Op, Traffic
    from shardc.passes.fuse.grouping.region import Verdict

    op = Op("attention", "aten.scaled_dot_product_attention", line, "", Traffic())
    note_choices([(op, Verdict(False, f"it stays PyTorch's: {why}"))])
