"""``shardc.search_plan``: its options compile, and the step is proved equal to one device."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.diagnostics.passes.search import NotSearched


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return (x - y).square().mean()


def asked() -> tuple[nn.Module, torch.optim.Optimizer, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.Adam(model.parameters(), lr=0.01), (torch.randn(16, 64), torch.randn(16, 64))


def test_what_is_found_compiles_and_is_right() -> None:
    model, optimizer, batch = asked()
    found = shardc.search_plan(model, optimizer, batch, cluster="h100-2x2")
    assert len(model.layers) == 8
    assert found.seconds > 0
    assert found.peak_bytes > 0
    text = str(found)
    assert "searched: " in text
    assert "Net" in text
    step = shardc.compile_step(model, optimizer, batch, fuse=False, **found.options)
    assert step.check().passed


def test_parts_of_the_choice_are_fixed() -> None:
    found = shardc.search_plan(*asked(), cluster="h100-2x2", micro_batches=2, recompute="none")
    assert found.options["micro_batches"] == 2
    assert found.options["recompute"] == "none"
    with pytest.raises(NotSearched, match="recompute of single modules"):
        shardc.search_plan(*asked(), cluster="h100-2x2", recompute="layers")
