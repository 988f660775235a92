"""A stand-in has a shape, and raises an error if its values are read."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from shardc.diagnostics.api import ValuesElsewhere
from shardc.frontend.step.model_state import has_storage
from shardc.step.elsewhere import Elsewhere, elsewhere


def made() -> Elsewhere:
    return elsewhere(nn.Parameter(torch.ones(2, 3)), "up.weight", "it is on another rank")


def test_it_says_what_it_is() -> None:
    found = made()
    assert isinstance(found, nn.Parameter) and found.shape == (2, 3) and found.dtype == torch.float32
    assert found.requires_grad and found.is_leaf and found.grad is None and found.numel() == 6
    assert not has_storage(found) and "up.weight" in repr(found)
    assert not isinstance(elsewhere(torch.ones(2), "x", "why"), nn.Parameter)
    model = nn.Linear(3, 2)
    model.weight = found
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    optimizer.step()  # it has no gradient
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias"] and "Linear" in str(model)


READS: list[Callable[[Tensor], object]] = [
    lambda x: x.sum(),
    lambda x: x + 1,
    lambda x: torch.stack([torch.ones(2, 3), x]),
    lambda x: x.detach(),
    lambda x: x.data,
    lambda x: x.tolist(),
    lambda x: x.numpy(),
    lambda x: x[0],
    lambda x: x.mul_(2),
    lambda x: torch.ones(2, 3).copy_(x),
    lambda x: x.to(torch.float64),
    lambda x: copy.deepcopy(x),
    lambda x: torch.save(x, io.BytesIO()),
    lambda x: nn.functional.linear(torch.ones(1, 3), x),
    lambda x: nn.ParameterList([x]).state_dict(),
]


@pytest.mark.parametrize("number", range(len(READS)))
def test_it_refuses_to_be_read(number: int) -> None:
    with pytest.raises(
        ValuesElsewhere, match=r"'up.weight' has no values to read: it is on another rank\n.*"
    ):
        READS[number](made())
