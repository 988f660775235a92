"""The tensor-parallel plan that a model ships with, as ``transformers`` models do."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def model_plan_of(model: torch.nn.Module) -> Mapping[str, str] | None:
    """Module pattern -> style (``colwise``, ``rowwise``, ...) of a model's ``tp_plan``; None if
    it has none.
    """
    plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    if not isinstance(plan, Mapping) or not plan:
        return None
    return {str(pattern): str(style) for pattern, style in plan.items()}
