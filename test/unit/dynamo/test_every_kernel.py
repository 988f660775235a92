"""Each kernel of the test models, on the very tensors that it is called with, against its body in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .convnet import ConvNet
from .language_models import tiny


def train(compiled: Callable[..., Any], kind: str, dtype: torch.dtype) -> None:
    """Forward, backward, and AdamW of all parameters."""
    model = (ConvNet() if kind == "convnet" else tiny(kind)).to(dtype).train()
    given = torch.randn(4, 3, 9, 9).to(dtype) if kind == "convnet" else torch.randint(0, 64, (2, 17))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    compiled(model, fuse=True)(given).backward()
    compiled(optimizer.step, fuse=True)()


@pytest.mark.slow
@pytest.mark.drawn(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert", "convnet"])
def test_every_kernel_of_a_training_step(
    seen: dict[str, float], compiled: Callable[..., Any], kind: str, dtype: torch.dtype
) -> None:
    train(compiled, kind, dtype)
    assert len(seen) > 5 and max(seen.values()) <= 1, seen
