"""Rules of maxima of padded images and their gradients."""

from __future__ import annotations

from math import inf

import pytest
import torch
from torch.nn import functional

import shardc.runtime.operators.padded_max_pool  # noqa: F401  (defines the operators)
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

IMAGE = sample(2, 3, 16, 8)
# id: kernel, stride, padding before, behind, dilation, value
CASES = {
    "zeros around, one row unread": ((3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 0.0),
    "behind only": ((2, 2), (1, 1), (0, 0), (1, 1), (1, 1), 0.0),
    "least number, wide": ((5, 3), (2, 1), (2, 1), (2, 1), (1, 1), -inf),
    "dilated, a number": ((3, 3), (1, 1), (1, 2), (3, 2), (2, 2), 0.25),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_halos_hold_the_number(name: str) -> None:
    proof = prove("shardc.padded_max_pool", (IMAGE, *CASES[name]), ways=(2, 4))
    assert {"y0", "y1"} <= proof.rule.traded and proof.unreached == ()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_halos_go_back(name: str) -> None:
    made, indices = torch.ops.shardc.padded_max_pool(IMAGE, *CASES[name])
    args = (sample(*made.shape, seed=3), IMAGE, *CASES[name], indices)
    proof = prove("shardc.padded_max_pool_backward", args, ways=(2, 4))
    assert {"y0", "y1"} <= proof.rule.traded and proof.unreached == ()


@pytest.mark.parametrize("name", CASES)
def test_it_is_a_pool_of_a_padded_image(name: str) -> None:
    kernel, stride, before, behind, dilation, value = CASES[name]
    x = IMAGE.clone().requires_grad_()
    padded = functional.pad(x, (before[1], behind[1], before[0], behind[0]), value=value)
    wanted = functional.max_pool2d(padded, kernel, stride, 0, dilation)
    made, indices = torch.ops.shardc.padded_max_pool(IMAGE, *CASES[name])
    torch.testing.assert_close(made, wanted.detach())
    grad = sample(*made.shape, seed=3)
    wanted.backward(grad)
    found = torch.ops.shardc.padded_max_pool_backward(grad, IMAGE, *CASES[name], indices)
    torch.testing.assert_close(found, x.grad)
