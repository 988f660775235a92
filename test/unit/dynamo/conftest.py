"""Models under ``torch.compile(backend="shardc")`` next to the same models run eagerly."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch_mlir import ir

from shardc.compiler.compilation import Compilation
from shardc.compiler.warn_once import warned
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.dynamo import program as graph_program

from .recording import Recording, recorded


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """No compiled code and no warning already said is left from another test; threads stay out of
    rounding.
    """
    torch._dynamo.reset()
    warned.clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiled() -> Callable[..., Any]:
    """``compiled(f)`` is ``f`` under the backend, unfused; falling back to ATen is an error in its calls."""

    def wrap(
        f: Callable[..., Any],
        fuse: bool = False,
        rounding: str = "fused",
        random: str = "counter",
        **options: Any,
    ) -> Callable[..., Any]:
        settings = {"fuse": fuse, "rounding": rounding, "random": random}
        inner = torch.compile(f, backend="shardc", options=settings, **options)

        def call(*args: Any, **kwargs: Any) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("error", ShardcFallbackWarning)
                return inner(*args, **kwargs)

        return call

    return wrap


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of every program that is written during the test."""
    texts: list[str] = []
    load = graph_program.load

    def record(text: str, library: Any = None, strict: bool = True) -> Callable[..., Any]:
        texts.append(text)
        return load(text, library, strict)

    monkeypatch.setattr(graph_program, "load", record)
    return texts


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, float]]:
    """The largest error of each kernel that was called, as a part of what its dtype allows;
    filled by calls.
    """
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    found: dict[str, float] = {}
    alive: list[ir.Module] = []
    real = Compilation._load

    def recording(self: Compilation, module: ir.Module, path: Path) -> Recording:
        alive.append(ir.Module.parse(module.operation.get_asm(), module.context))
        return recorded(alive[-1], real(self, module, path), found)

    monkeypatch.setattr(Compilation, "_load", recording)
    monkeypatch.setattr("shardc.dynamo.program_cache.store", lambda *_: None)
    yield found


def trained(
    model: torch.nn.Module,
    run: Callable[..., Any],
    inputs: tuple[Any, ...],
    steps: int = 3,
    loss: Callable[[Any], torch.Tensor] = lambda output: output.float().square().mean(),
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Losses of some steps of AdamW, and the model's state after them; every run draws the same random
    numbers.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(7)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(run(*inputs))
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    return losses, {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_trains_as_eager(
    wrap: Callable[..., Any],
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    *,
    within: float = 0,
    **options: Any,
) -> None:
    """Losses and the state after training are those of eager, bit for bit or ``within`` so much."""
    twin = copy.deepcopy(model)
    expected = trained(twin, twin, inputs, **options)
    found = trained(model, wrap(model), inputs, **options)
    assert_identical(found, expected, within)


def assert_identical(found: Any, expected: Any, within: float = 0) -> None:
    """Two trees of tensors are equal in shape, dtype, stride, and every bit, or ``within`` so much."""
    found, tree = pytree.tree_flatten(found)
    expected, expected_tree = pytree.tree_flatten(expected)
    assert tree == expected_tree
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0, atol=within, equal_nan=True, check_stride=True)
        else:
            assert a == b
