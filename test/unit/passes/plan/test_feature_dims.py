"""Which dim of an input of three dims is features: the one that layers sum over, whichever is longer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.passes.manager.program import read_program
from shardc.passes.plan.feature_dims import feature_dims

TIME, FEATURES = 8, 24


@pytest.mark.parametrize(
    ("model", "shape", "dim"),
    [
        (nn.Linear(FEATURES, 4), (2, TIME, FEATURES), 2),
        (nn.Sequential(nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 4)), (2, TIME, FEATURES), 2),
        (nn.Conv1d(FEATURES, 4, 3), (2, FEATURES, TIME), 1),
        (nn.LayerNorm(FEATURES), (2, TIME, FEATURES), None),
    ],
)
def test_layers_tell_features_from_time(model: nn.Module, shape: tuple[int, ...], dim: int | None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = (torch.randn(shape),)
    captured = capture_step(
        model, optimizer, batch, loss=lambda output, _: output.square().mean(), context=new_context()
    )
    program = read_program(captured.module)
    assert program is not None
    assert list(feature_dims(program).values()) == ([] if dim is None else [dim])
