"""Which attention of ``torch.compile``'s graphs is ``shardc::attention``, so that kernels and libraries of a GPU compete
for it, and what is said of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from shardc.driver.fusion import is_explained, note_choices
from shardc.driver.gpu_target import gpu_target
from shardc.driver.settings import Settings


def attention_of_gpus(settings: Settings, inputs: Sequence[Any]) -> AbstractContextManager[Any]:
    """Inside of it a graph of these inputs is traced with ``shardc::attention``, if it is one of a GPU and kernels may
    be parts of it; ``explain_fusion`` is told of each attention that stays PyTorch's.
    """
    wanted = settings.measured if settings.matmuls == "measured" else settings.matmuls == "generated"
    devices = dict.fromkeys(value.device for value in inputs if isinstance(value, torch.Tensor))
    if not (settings.fuse and wanted and any(_has_kernels(device) for device in devices)):
        return nullcontext()
    from shardc.frontend.graph_attention import GraphAttention

    return GraphAttention(_has_kernels, _note_left)


def _has_kernels(device: torch.device) -> bool:
    return gpu_target(device) is not None


def _note_left(line: str | None, why: str) -> None:
    if not is_explained():
        return
    # not at the top: these load MLIR, which a start from the caches does without
    from shardc.passes.fuse.explain import Op, Traffic
    from shardc.passes.fuse.piece import Verdict

    op = Op("attention", "aten.scaled_dot_product_attention", line, "", Traffic())
    note_choices([(op, Verdict(False, f"it stays PyTorch's: {why}"))])
