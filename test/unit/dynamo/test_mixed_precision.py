"""Halves that meet f32 parameters, and operators whose fake implementation is wrong, under
``torch.compile``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from shardc.runtime.errors import ResultMismatch
from shardc.runtime.first_run import ResultMismatchWarning

Wrap = Callable[..., Any]
NORMS = {
    "layer": lambda: nn.LayerNorm(32),
    "layer without bias": lambda: nn.LayerNorm(32, bias=False),
    "group": lambda: nn.GroupNorm(4, 32),
    "batch": lambda: nn.BatchNorm1d(32),
    "rms": lambda: nn.RMSNorm(32),
}


@pytest.fixture(autouse=True)
def mismatches_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResultMismatchWarning)
        yield


def gradients(model: nn.Module, run: Wrap, x: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    model.zero_grad()
    with torch.autocast("cpu", dtype):
        loss = run(x).float().square().mean()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_under_autocast_have_eagers_gradients(
    compiled: Wrap, norm: str, dtype: torch.dtype, fuse: bool
) -> None:
    """Means and rstd are f32 there, which fake tensors do not know: gradients were NaN or 74 times wrong."""
    model = nn.Sequential(nn.Linear(16, 32), NORMS[norm](), nn.Linear(32, 8))
    x = torch.randn(64, 16)
    eager = gradients(model, model, x, dtype)
    found = gradients(model, compiled(model, fuse=fuse), x, dtype)
    largest = max(g.abs().max() for g in eager)
    for ours, theirs in zip(found, eager, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02 * float(largest))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_running_statistics_of_a_half_model(compiled: Wrap, dtype: torch.dtype) -> None:
    """Fake tensors say that they come in f32."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to(dtype)
    x = torch.randn(4, 3, 8, 8, dtype=dtype)
    before = {name: b.clone() for name, b in model.named_buffers()}
    model(x)
    expected = {name: b.clone() for name, b in model.named_buffers()}
    model.load_state_dict(before, strict=False)
    compiled(model, fuse=True)(x).sum().backward()
    torch.testing.assert_close(dict(model.named_buffers()), expected)


@pytest.fixture
def mean_of_rows() -> Iterator[Wrap]:
    """An operator whose fake implementation says another dtype."""
    with torch.library._scoped_library("shardc_mixed", "FRAGMENT") as library:
        library.define("mean_of_rows(Tensor x) -> Tensor")
        library.impl("mean_of_rows", lambda x: x.float().mean(-1), "CPU")
        library.impl("mean_of_rows", lambda x: x.mean(-1), "Meta")
        yield lambda x: torch.ops.shardc_mixed.mean_of_rows(x).exp() + 1


def test_a_wrong_fake_implementation_is_named(compiled: Wrap, mean_of_rows: Wrap) -> None:
    """Before a kernel reads the f32 memory as bf16; without kernels calls take what comes."""
    x = torch.randn(5, 7, dtype=torch.bfloat16)
    with pytest.raises(ResultMismatch) as caught:
        compiled(mean_of_rows, fuse=True)(x)
    said = "mean_of_rows.default returned float32[5] as result 0, where the program has bfloat16[5]"
    assert said in str(caught.value) and "test_mixed_precision.py:" in str(caught.value)
    torch._dynamo.reset()
    with pytest.warns(ResultMismatchWarning, match="returned float32"):
        made = compiled(mean_of_rows, fuse=False)(x)
    torch.testing.assert_close(made, mean_of_rows(x))


def test_a_program_from_the_cache_is_checked(
    compiled: Wrap, mean_of_rows: Wrap, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    x = torch.randn(5, 7, dtype=torch.bfloat16)
    for _ in range(2):
        torch._dynamo.reset()
        with pytest.raises(ResultMismatch):
            compiled(mean_of_rows, fuse=True)(x)


def test_other_strides_than_predicted_are_said(compiled: Wrap) -> None:
    """Numbers are right all the same."""
    with torch.library._scoped_library("shardc_laid", "FRAGMENT") as library:
        library.define("turned(Tensor x) -> Tensor")
        library.impl("turned", lambda x: x.mT.contiguous().mT * 2, "CPU")
        library.impl("turned", lambda x: torch.empty_like(x), "Meta")
        x = torch.randn(3, 4)
        with pytest.warns(
            ResultMismatchWarning, match=r"strides \(1, 3\) of result 0.*float32\[3, 4; 4, 1\]"
        ):
            made = compiled(torch.ops.shardc_laid.turned, fuse=True)(x)
        torch.testing.assert_close(made, x * 2)
