"""Views that an in-place op writes through, which a trace must write back into what they are views of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from shardc.frontend.step.spec import Capture

pytestmark = pytest.mark.usefixtures("f64")


class Shifted(nn.Module):
    """Relative positions by shifting, as Funnel and Transformer-XL do:
    a slice of views of a product, written in place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("binh,tnh->bnit", x, self.table)
        batch, heads, length, places = scores.shape
        scores = scores.reshape(batch, heads, places, length)[:, :, 1:].reshape(
            batch, heads, length, places - 1
        )
        scores = scores[..., :length]
        scores *= torch.arange(length) > 0
        return scores.square().sum()


def test_in_place_product_on_a_slice_of_a_view(follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    sgd = lambda model: torch.optim.SGD(model.parameters(), lr=0.0625)  # noqa: E731
    follows_eager(
        Shifted(), sgd, [(torch.randn(2, 5, 3, 4),) for _ in range(2)], loss=lambda output, _: output
    )
