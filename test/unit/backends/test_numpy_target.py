"""A target that the compiler knows nothing of, on the rows of the kernel benchmark: ``numpy_target.py`` and
one line here are all that it takes, for graphs of ``torch.compile`` and for training steps.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.backends import registry
from shardc.compiler.warn_once import warned
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.diagnostics.kernels import UnknownTarget
from shardc.options.targets import TARGETS
from shardc.runtime.kernels.loaders import LOADERS, Loader

from .numpy_target import NumpyKernels, NumpyTarget

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from cpu_kernels import KERNELS, _oracle, _runner

NO_CODE = ("attention",)
"""Rows whose kernel holds an op that the target has no code for: they run through ATen, and are told of."""
LONE = ("softmax", "layer_norm")
"""Rows of one call, which shares no kernel with another."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(registry, "BACKENDS", dict(registry.BACKENDS))
    loader = Loader(("numpy",), "kernels.mlir", False, NumpyTarget.load, lambda: torch.device("cpu"))
    monkeypatch.setattr("shardc.runtime.kernels.loaders.LOADERS", [loader, *LOADERS])
    for name in NumpyTarget.names():
        monkeypatch.setitem(TARGETS, name, "")
    registry.register_target(NumpyTarget)
    monkeypatch.setattr(NumpyKernels, "called", [])
    torch._dynamo.reset()
    warned.clear()
    yield
    torch._dynamo.reset()


def _inputs(name: str) -> list[Tensor]:
    """Of sizes at which every element can be looked at."""
    torch.manual_seed(0)
    if name == "attention":
        return [torch.randn(2, 2, 16, 8) for _ in range(3)]
    if name == "rope":
        return [torch.randn(2, 3, 8, 8), torch.randn(8, 8), torch.randn(8, 8)]
    return KERNELS[name].inputs(8, 32)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("matmuls", ["extern", "generated"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_rows_in_graphs(name: str, matmuls: str) -> None:
    """Forward alone, and with gradients where a row has any."""
    kernel, inputs = KERNELS[name], _inputs(name)
    compiled = torch.compile(
        kernel.call, backend="shardc", dynamic=False, options={"target": "numpy", "matmuls": matmuls}
    )
    for backward in (False, True) if kernel.trains else (False,):
        found = []
        for call in (kernel.call, compiled):
            torch.manual_seed(1)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ShardcFallbackWarning)
                found.append([t.clone() for t in _runner(call, [t.clone() for t in inputs], backward)()])
        _oracle(found[1], found[0], name)
        said = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
        assert bool(said) == (name in NO_CODE), said
    assert bool(NumpyKernels.called) != (name in (*NO_CODE, *LONE))


class Row(nn.Module):
    """A kernel row as a model, whose tensors of floating point are parameters."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.call, given = KERNELS[name].call, _inputs(name)
        self.scale = nn.Parameter(torch.ones(given[0].shape[-1], dtype=given[0].dtype))
        self.kept = nn.ParameterList(t for t in given[1:] if t.is_floating_point())

    def forward(self, x: Tensor, *integers: Tensor) -> Tensor:
        result = self.call(x * self.scale, *self.kept, *integers)
        return result.float().square().mean()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.trains])
def test_the_kernel_rows_in_steps(name: str) -> None:
    """Two steps of training with AdamW are what they are in eager mode."""
    x, *others = _inputs(name)
    batch = (x, *(t for t in others if not t.is_floating_point()))
    torch.manual_seed(0)
    model, twin = Row(name), Row(name)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, twin)]
    step = shardc.compile_step(model, optimizers[0], batch, mesh={"data": 1}, target="numpy")
    found = [step(batch) for _ in range(2)]
    wanted = []
    for _ in range(2):
        optimizers[1].zero_grad()
        loss = twin(*batch)
        loss.backward()
        optimizers[1].step()
        wanted.append(loss.detach())
    torch.testing.assert_close(found, wanted, rtol=2e-2 if "bf16" in name else 1e-4, atol=1e-5)
    assert step.compiled.target is not None and step.compiled.target.name == "numpy"
    assert len(NumpyKernels.called) >= 2


def test_a_target_that_does_not_run_on_the_device_is_told_of() -> None:
    x = torch.randn(4)
    options = {"target": "sm_90"}
    with pytest.warns(ShardcFallbackWarning, match="kernels for sm_90 do not run on cpu"):
        found = torch.compile(lambda x: x.sin() * 2, backend="shardc", options=options)(x)
    torch.testing.assert_close(found, x.sin() * 2)
    assert registry.find_target("cpu").takes(x.device)


def test_a_name_that_nobody_registered_is_refused() -> None:
    with pytest.raises(
        UnknownTarget, match=r"there is no target 'nunpy'; known ones are numpy, sm_80, .*cpu"
    ):
        registry.find_target("nunpy")
