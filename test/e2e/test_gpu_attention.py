"""A transformer's layer as an artefact for a GPU that is not here:
attention is a Triton kernel, forward and backward.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from interpreted import check_training
from torch import nn

import shardc

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")


class Layer(nn.Module):
    """Causal attention with 4 heads of queries and 2 of keys, over sequences of 33."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        q, (k, v) = self.q(x).unflatten(-1, (4, 16)), self.kv(x).unflatten(-1, (2, 2, 16)).unbind(-3)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return nn.functional.mse_loss(self.out(seen.transpose(1, 2).flatten(-2)), target)


def _training() -> tuple[nn.Module, torch.optim.Optimizer, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = Layer()
    return (
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        {"x": torch.randn(2, 33, 32), "target": torch.randn(2, 33, 8)},
    )


@pytest.mark.slow
def test_it_trains_as_eager_does(tmp_path: Path) -> None:
    model, optimizer, batch = _training()
    settings = {"mesh": {"data": 1}, "target": "sm_90", "matmuls": "generated"}
    shardc.compile_step(model, optimizer, batch, **settings).save(tmp_path / "out")
    sources = [path.read_text() for path in (tmp_path / "out" / "kernels").glob("*.py")]
    assert any("_dkdv" in text for text in sources) and any(
        "_keys(" in text and "lse" in text for text in sources
    )
    check_training(_training, tmp_path / "out")
