"""Rules of convolutions of padded images and their gradients: more padding behind than before, and rings."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.nn import functional

import shardc.runtime.operators.padded_convolution  # noqa: F401  (defines the operators)
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

IMAGE = sample(2, 4, 8, 8)
# id: weight, bias, stride, padding before, behind, dilation, groups
CASES = {
    "as TensorFlow": (sample(6, 4, 3, 3), sample(6), (2, 2), (0, 0), (1, 1), (1, 1), 1),
    "as much on both sides": (sample(6, 4, 3, 3), None, (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "depthwise, wide": (sample(4, 1, 5, 5), sample(4), (2, 2), (1, 1), (2, 2), (1, 1), 4),
    "dilated, grouped": (sample(4, 2, 3, 3), sample(4), (1, 1), (1, 3), (3, 1), (2, 2), 2),
}
NAMES = list(product(CASES, (False, True)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "ring"), NAMES)
def test_halos_are_the_padding(name: str, ring: bool) -> None:
    weight, bias, *settings = CASES[name]
    proof = prove("shardc.padded_convolution", (IMAGE, weight, bias, *settings, ring), ways=(2, 4))
    assert {"y0", "y1"} <= proof.rule.traded and proof.unreached == ()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "ring"), NAMES)
def test_gradients_of_halos_go_back(name: str, ring: bool) -> None:
    weight, bias, *settings = CASES[name]
    made = torch.ops.shardc.padded_convolution(IMAGE, weight, bias, *settings, ring)
    for mask in ((True, True, bias is not None), (False, True, False)):
        args = (sample(*made.shape, seed=3), IMAGE, weight, *settings, ring, mask)
        proof = prove("shardc.padded_convolution_backward", args, ways=(2, 4))
        assert {"y0", "y1"} <= proof.rule.traded
        assert proof.rule.reduce["y0"] == proof.rule.reduce["n"] == "sum"


@pytest.mark.parametrize(("name", "ring"), NAMES)
def test_it_is_a_convolution_of_a_padded_image(name: str, ring: bool) -> None:
    weight, bias, stride, before, behind, dilation, groups = CASES[name]
    x, w = IMAGE.clone().requires_grad_(), weight.clone().requires_grad_()
    pairs = (before[1], behind[1], before[0], behind[0])
    padded = functional.pad(x, pairs, "circular" if ring else "constant")
    made = functional.conv2d(padded, w, bias, stride, 0, dilation, groups)
    settings, ops = (stride, before, behind, dilation, groups, ring), torch.ops.shardc
    torch.testing.assert_close(ops.padded_convolution(IMAGE, weight, bias, *settings), made.detach())
    grad = sample(*made.shape)
    made.backward(grad)
    found = ops.padded_convolution_backward(grad, IMAGE, weight, *settings, [True, True, False])
    torch.testing.assert_close(found[0], x.grad)
    torch.testing.assert_close(found[1], w.grad)
