"""PyTorch's own samples of single ops, forward and gradient: equal to eager whether an op compiles or falls
back.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from shardc.diagnostics.dynamo import ShardcFallbackWarning

SAMPLES = 2
COMPILED = [
    "add",
    "addmm",
    "amax",
    "argmax",
    "as_strided_scatter",
    "baddbmm",
    "bmm",
    "cat",
    "cdist",
    "chunk",
    "clamp",
    "cumsum",
    "diagonal",
    "div",
    "einsum",
    "expand",
    "fft.rfft",
    "flip",
    "gather",
    "index_add",
    "index_select",
    "linalg.eigvals",
    "linalg.inv",
    "logsumexp",
    "masked_fill",
    "matmul",
    "mean",
    "nn.functional.avg_pool2d",
    "nn.functional.conv2d",
    "nn.functional.cross_entropy",
    "nn.functional.ctc_loss",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.group_norm",
    "nn.functional.interpolate",
    "nn.functional.layer_norm",
    "nn.functional.pad",
    "nn.functional.scaled_dot_product_attention",
    "permute",
    "pow",
    "repeat",
    "roll",
    "scatter_add",
    "softmax",
    "sort",
    "split",
    "stack",
    "stft",
    "sum",
    "topk",
    "tril",
    "unbind",
    "unfold",
    "var",
    "view_as_complex",
    "where",
]
"""Ops all of whose samples are compiled."""

FALLING_BACK = ["as_strided", "as_strided_copy"]
"""Ops some of whose samples run through ATen."""


def _sample_inputs(name: str) -> tuple[OpInfo, list[SampleInput]]:
    op = next(op for op in op_db if op.name == name)
    return op, list(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=True), SAMPLES))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShardcFallbackWarning)
        _check(name)


@pytest.mark.parametrize("name", FALLING_BACK)
def test_falling_back(name: str) -> None:
    with pytest.warns(ShardcFallbackWarning):
        _check(name)


def _check(name: str) -> None:
    op, samples = _sample_inputs(name)
    for sample in samples:
        torch._dynamo.reset()

        def call(*args: Any, op: OpInfo = op, kwargs: dict[str, Any] = sample.kwargs) -> Any:
            return op(*args, **kwargs)

        args = (sample.input, *sample.args)
        found = _forward_and_gradient(
            torch.compile(call, backend="shardc", options={"fuse": False}, dynamic=False), args
        )
        expected = _forward_and_gradient(call, args)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            # AOTAutograd traces some gradients as other sums than eager's, so that they differ in rounding.
            torch.testing.assert_close(a, b, equal_nan=True, check_stride=True)


def _forward_and_gradient(f: Callable[..., Any], args: tuple[Any, ...]) -> list[torch.Tensor]:
    results = [r for r in pytree.tree_leaves(f(*args)) if isinstance(r, torch.Tensor)]
    leaves = [a for a in pytree.tree_leaves(args) if isinstance(a, torch.Tensor) and a.requires_grad]
    roots = [r for r in results if r.requires_grad]
    if not roots or not leaves:
        return results
    weights = [torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape).to(r.dtype) for r in roots]
    grads = torch.autograd.grad(roots, leaves, weights, allow_unused=True)
    return results + [grad for grad in grads if grad is not None]
