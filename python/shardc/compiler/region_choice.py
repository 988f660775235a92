"""What decides whether matmuls and attention are calls of a library or parts of kernels."""

from __future__ import annotations

import torch

from shardc.backends.base import Target
from shardc.compiler.measured_regions import MeasuredRegions
from shardc.compiler.modelled_regions import ModelledRegions
from shardc.options.kernels import MATMUL_FORMS
from shardc.passes.fuse.grouping.region import Choose, EveryRegion


def region_choice(
    target: Target,
    matmuls: str | Choose,
    device: torch.device | None,
    rounding: str = "fused",
    tf32: bool = False,
) -> str | Choose:
    """As ``fuse_module`` takes it: ``matmuls`` itself where that says it; else by measurement on ``device``,
    where kernels for the target run, by the target's model of costs without one, or else calls.
    """
    if not isinstance(matmuls, str) or matmuls in MATMUL_FORMS:
        return matmuls
    model = ModelledRegions(target, rounding, tf32) if target.is_modelled else None
    if device is None:
        return "extern" if model is None else EveryRegion(model)
    measured = MeasuredRegions(target, device, rounding, tf32, model)
    return measured if model is None else EveryRegion(measured)
