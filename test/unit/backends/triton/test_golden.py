"""Golden texts of a few modules, so that a review shows changes of generated code.

``SHARDC_ACCEPT=1 pytest test/unit/backends/triton/test_golden.py`` writes the files anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from .programs import emitted, fused

GOLDEN = Path(__file__).with_name("golden")
aten = torch.ops.aten


def _adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> list[Tensor]:
    m = m.lerp(g, 0.1)
    v = v * 0.999 + g * g * 0.001
    return [p - 0.001 * m / (v.sqrt() + 1e-8), m, v]


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "bias_gelu": (lambda x, bias: F.gelu(x + bias), (torch.empty(100, 300), torch.empty(300))),
    "softmax": (lambda x: torch.softmax(x, -1), (torch.empty(4096, 1000, dtype=torch.bfloat16),)),
    "long_softmax": (lambda x: torch.softmax(x, -1), (torch.empty(64, 50304),)),
    "layer_norm_backward": (
        lambda g, x, mean, scale, w: aten.native_layer_norm_backward(
            g, x, [512], mean, scale, w, w, [True] * 3
        ),
        (
            torch.empty(4096, 512),
            torch.empty(4096, 512),
            torch.empty(4096, 1),
            torch.empty(4096, 1),
            torch.empty(512),
        ),
    ),
    "embedding_backward": (
        lambda g, index: aten.embedding_dense_backward(g, index, 50257, -1, False),
        (
            torch.empty(8, 1024, 768, dtype=torch.bfloat16, device="meta"),
            torch.empty(8, 1024, dtype=torch.int64, device="meta"),
        ),
    ),
    "parts": (
        lambda x: torch.cat([x[:, :1], x[:, 1:] - x[:, :-1] * 0.97], 1) * 2,
        (torch.empty(8, 48000),),
    ),
    "adamw": (_adamw, tuple(torch.empty(64, 64) for _ in range(4))),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    function, given = CASES[name]
    text = "\n\n".join(kernel.text for kernel in emitted(fused(function, *given)))
    path = GOLDEN / f"{name}.py"
    if os.environ.get("SHARDC_ACCEPT") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path} is old; SHARDC_ACCEPT=1 writes it anew"
