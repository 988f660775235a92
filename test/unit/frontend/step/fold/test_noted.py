"""Calls of modules that are noted: copies of layers say the same as traced ones, and each call is its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.passes.manager.program import find_function


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.inner(self.norm(x)))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def calls(noted: Sequence[str]) -> list[str]:
    """The calls that ops of the forward are marked with, each once, in order."""
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = capture_step(
        model, optimizer, torch.ones(2, 4), loss=lambda out, _: out.sum(), context=new_context(), noted=noted
    )
    assert not any("Noted" in str(kind.__mro__) for kind in map(type, model.modules()))
    function = find_function(found.module)
    assert function is not None
    ops = [view.operation for view in function.regions[0].blocks[0].operations]
    return list(
        dict.fromkeys(op.attributes["dist.module"].value for op in ops if "dist.module" in op.attributes)
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("folds", ["1", "0"])
def test_what_is_noted(folds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_FOLD_LAYERS", folds)
    numbers = range(4)
    assert calls([f"layers.{n}" for n in numbers]) == [f"layers.{n}" for n in numbers]
    assert calls(["layers.1"]) == ["layers.1"]
    inner = [f"layers.{n}.inner{call}" for n in numbers for call in ("", "#1")]
    assert calls([f"layers.{n}.inner" for n in numbers]) == inner
    assert calls([]) == []
