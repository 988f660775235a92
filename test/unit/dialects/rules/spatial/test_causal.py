"""Rules of causal convolutions and their gradients, with halos of one block and of several."""

from __future__ import annotations

import pytest
import torch

import shardc.runtime.operators.causal_convolution  # noqa: F401  (defines the operators)
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

X = sample(4, 6, 12)

# id: weight, bias, dilation, groups, the rule
CASES = {
    "depthwise": (sample(6, 1, 4), sample(6), 1, 6, "([n,g,s],[g,1,z],[g])->([n,g,s])"),
    "without bias": (sample(6, 1, 4), None, 1, 6, "([n,g,s],[g,1,z])->([n,g,s])"),
    "dense": (sample(8, 6, 3), sample(8), 2, 1, "([n,i,s],[o,i,z],[o])->([n,o,s]) reduce={i}"),
    "grouped": (
        sample(4, 3, 2),
        sample(4),
        1,
        2,
        "([n,(g i),s],[(g o),i,z],[(g o)])->([n,(g o),s]) reduce={i}",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_blocks_get_what_comes_before(name: str) -> None:
    weight, bias, dilation, groups, rule = CASES[name]
    proof = prove("shardc.causal_convolution", (X, weight, bias, dilation, groups), ways=(2, 3, 4))
    assert str(proof.rule) == f"{rule} replicate={{z}} trade={{s}}"


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_halos_go_back(name: str) -> None:
    weight, bias, dilation, groups, _ = CASES[name]
    grad, mask = sample(4, weight.shape[0], 12), (True, True, bias is not None)
    args = (grad, X, weight, dilation, groups, mask)
    proof = prove("shardc.causal_convolution_backward", args, ways=(2, 3, 4))
    assert proof.rule.reduce["s"] == "sum"


@pytest.mark.parametrize("name", CASES)
def test_it_is_a_convolution_that_is_cut_off(name: str) -> None:
    weight, bias, dilation, groups, _ = CASES[name]
    x, w = X.clone().requires_grad_(), weight.clone().requires_grad_()
    reach = dilation * (weight.shape[2] - 1)
    made = torch.nn.functional.conv1d(x, w, bias, 1, reach, dilation, groups)[:, :, :12]
    ops = torch.ops.shardc
    torch.testing.assert_close(ops.causal_convolution(X, weight, bias, dilation, groups), made.detach())
    grad = sample(*made.shape)
    made.backward(grad)
    mask = [True, True, False]
    found = ops.causal_convolution_backward(grad, X, weight, dilation, groups, mask)
    torch.testing.assert_close(found[0], x.grad)
    torch.testing.assert_close(found[1], w.grad)
