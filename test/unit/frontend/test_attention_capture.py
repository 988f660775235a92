"""``F.scaled_dot_product_attention`` under a trace.

Every form of call equals torch's own, values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shardc.frontend.step.spec import Capture

pytestmark = pytest.mark.usefixtures("f64")
Shape = tuple[int, ...]


class Attend(nn.Module):
    """Query, key, value and a mask as parameters, so that all their gradients are compared."""

    def __init__(
        self, q: Shape, k: Shape, v: Shape, mask: torch.Tensor | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Parameter(torch.randn(s)) for s in (q, k, v))
        self.mask = nn.Buffer(mask) if type(mask) is torch.Tensor else mask
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.scaled_dot_product_attention(self.q, self.k, self.v, self.mask, **self.options)
        return (out * x).square().sum()


Q, K = (2, 4, 5, 8), (2, 4, 7, 8)
CALLS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: Attend(Q, K, K),
    "causal": lambda: Attend(Q, Q, Q, is_causal=True),
    "scaled": lambda: Attend(Q, K, K, scale=0.3),
    "value_dim": lambda: Attend(Q, K, (2, 4, 7, 3)),
    "grouped": lambda: Attend(Q, (2, 2, 7, 8), (2, 2, 7, 8), enable_gqa=True),
    "three_dims": lambda: Attend((6, 5, 8), (6, 7, 8), (6, 7, 8)),
    "two_dims": lambda: Attend((5, 8), (7, 8), (7, 8), torch.rand(5, 7) > 0.3),
    "five_dims": lambda: Attend((3, *Q), (3, *K), (3, *K), torch.randn(2, 1, 5, 7)),
    "bool_mask": lambda: Attend(Q, K, K, torch.rand(5, 7) > 0.3),
    "empty_rows": lambda: Attend(Q, K, K, torch.arange(5)[:, None] > torch.arange(7)),
    "float_mask": lambda: Attend(Q, K, K, torch.randn(2, 1, 5, 7)),
    "mask_of_three_dims": lambda: Attend((6, 5, 8), (6, 7, 8), (6, 7, 8), torch.randn(6, 5, 7)),
    "learned_mask": lambda: Attend(Q, K, K, nn.Parameter(torch.randn(4, 5, 7))),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(CALLS))
def test_call_equals_torch(name: str, follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    model = CALLS[name]()
    capture = follows_eager(
        model,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.01),
        [(torch.randn(()),) for _ in range(2)],
        loss=lambda out, _: out,
    )
    calls = [node for node in capture.graph.graph.nodes if "shardc.attention" in str(node.target)]
    assert len(calls) == (0 if name == "learned_mask" else 2)


def test_dropout_of_probabilities_keeps_their_mean(follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    model = Attend(Q, K, K, dropout_p=0.0)
    model.options["dropout_p"] = 1e-12
    capture = follows_eager(
        model,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.01),
        [(torch.randn(()),) for _ in range(2)],
        loss=lambda out, _: out,
    )
    assert "shardc.uniform" in capture.graph.code
