"""Layers with a state along a split sequence: halos of short convolutions, loops over chunks or tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

B, C, S, K = 4, 8, 32, 4
"""Batch, channels, sequence, elements of a window."""
PLAN = {"0": [None, "context"]}


class Convolved(nn.Module):
    """A depthwise convolution of [b, s, c] along the sequence, as state-space layers have one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.short = nn.Conv1d(C, C, K, padding=K - 1, groups=C)

    def forward(self, x: Tensor) -> Tensor:
        return self.short((x * self.scale).transpose(1, 2))[:, :, : x.shape[1]]


class Walked(nn.Module):
    """A state [b, c, c] that a loop over chunks passes on."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        chunks = (x * self.scale).reshape(B, 8, S // 8, C)
        state, made = x.new_zeros(B, C, C), []
        for n in range(8):
            chunk = chunks[:, n]
            made.append(chunk @ state)
            state = 0.5 * state + chunk.transpose(1, 2) @ chunk
        return torch.stack(made, 1)


def _compiled(compile_plan: Callable[..., Any], model: nn.Module, ways: int) -> Any:
    loss = lambda out, _: out.square().mean()  # noqa: E731
    return compile_plan(model, (torch.zeros(B, S, C),), PLAN, {"context": ways}, loss=loss)


@pytest.mark.parametrize("ways", [2, 4])
def test_a_halo_is_what_a_window_reaches_back(compile_plan: Callable[..., Any], ways: int) -> None:
    """Forward the halo, backward it again, and its gradient: (k - 1) elements of each channel in f32."""
    sharded = _compiled(compile_plan, Convolved(), ways)
    halo = B * C * (K - 1) * 4
    sent = [sharded.bytes_moved("exchange", "context", phase) for phase in ("forward", "backward")]
    assert sent == [halo, 2 * halo]
    assert {t.kind for t in sharded.transfers} <= {"exchange", "all_reduce"}
    assert sharded.compiled.work.share <= 1.01 / ways


@pytest.mark.parametrize("ways", [2, 4])
def test_a_loop_runs_while_the_batch_is_cut(compile_plan: Callable[..., Any], ways: int) -> None:
    """What the loop reads goes by one all-to-all, and no state is sent."""
    sharded = _compiled(compile_plan, Walked(), ways)
    assert sharded.compiled.work.share == pytest.approx(1 / ways)
    size_bytes = B * S * C * 4
    assert sharded.bytes_moved("all_to_all", "context", "forward") == (1 - 1 / ways) / ways * size_bytes
    assert not [t for t in sharded.transfers if t.kind == "all_gather"]
