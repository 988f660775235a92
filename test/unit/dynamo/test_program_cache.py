"""Programs kept on disk: a second process (here: a reset) compiles nothing,
and another program is never taken for one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from shardc.backends.cpu import compile as kernels
from shardc.cache import disk as cache
from shardc.compiler import warn_once
from shardc.dynamo import compile_program as graph_compiler


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The phases of the graphs that were really imported."""
    found: list[str] = []
    real = graph_compiler.import_graph
    monkeypatch.setattr(
        graph_compiler,
        "import_graph",
        lambda graph, phase, lowered: found.append(phase) or real(graph, phase, lowered),
    )
    return found


def gelu_of_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x * w) + 1


def gelu_of_sum(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x + w) + 1


def gradients(function: Any, *inputs: torch.Tensor, **options: Any) -> list[torch.Tensor]:
    """Of a function compiled as a new process would: Dynamo has forgotten everything."""
    torch._dynamo.reset()
    inputs = tuple(x.detach().requires_grad_() for x in inputs)
    compiled = torch.compile(function, backend="shardc", options=options or None)
    compiled(*inputs).sum().backward()
    found = [x.grad for x in inputs if x.grad is not None]
    assert len(found) == len(inputs)
    return found


def test_a_graph_is_compiled_once(imports: list[str]) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)
    first = gradients(gelu_of_product, x, w)
    assert imports == ["forward", "backward"]
    second = gradients(gelu_of_product, x, w)
    assert imports == ["forward", "backward"]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.slow
def test_what_differs_is_compiled_anew(imports: list[str]) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)
    cases = [
        (gelu_of_product, (x, w), {}),
        (gelu_of_sum, (x, w), {}),
        (gelu_of_product, (x[:3], w), {}),
        (gelu_of_product, (x.double(), w.double()), {}),
        (gelu_of_product, (x.T.contiguous().T, w), {}),
        (gelu_of_product, (x, w), {"fuse": False}),
        (gelu_of_product, (x, w), {"rounding": "eager"}),
    ]
    for number, (function, inputs, options) in enumerate(cases):
        found = gradients(function, *inputs, **options)
        assert len(imports) == 2 * (number + 1), number
        leaves = [t.detach().requires_grad_() for t in inputs]
        function(*leaves).sum().backward()
        for ours, theirs in zip(found, leaves, strict=True):
            torch.testing.assert_close(ours, theirs.grad)


def test_constants_are_those_of_the_graph_at_hand(imports: list[str]) -> None:
    def plus(value: float) -> torch.Tensor:
        return gradients_free(lambda x: x * torch.tensor([value, 2.0]))

    def gradients_free(function: Any) -> torch.Tensor:
        torch._dynamo.reset()
        return torch.compile(function, backend="shardc")(torch.ones(2))

    assert torch.equal(plus(3.0), torch.tensor([3.0, 2.0]))
    assert torch.equal(plus(5.0), torch.tensor([5.0, 2.0]))


def test_damaged_and_missing_files_are_made_again(folder: Path, imports: list[str]) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)
    first = gradients(gelu_of_product, x, w)
    for path in folder.glob("graph-*"):
        path.write_bytes(path.read_bytes()[:-5])
    assert all(torch.equal(a, b) for a, b in zip(first, gradients(gelu_of_product, x, w), strict=True))
    assert len(imports) == 4
    for path in folder.glob("kernels-*"):
        path.unlink()
    assert all(torch.equal(a, b) for a, b in zip(first, gradients(gelu_of_product, x, w), strict=True))
    assert len(imports) == 6 and list(folder.glob("kernels-*"))


def test_what_did_not_compile_is_said_again(
    monkeypatch: pytest.MonkeyPatch, imports: list[str], folder: Path
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no machine code today")

    monkeypatch.setattr(kernels, "compile_functions", fails)
    monkeypatch.setattr(kernels, "build_library", fails)
    monkeypatch.setattr(warn_once, "warned", set())
    with pytest.warns(match="no machine code today"):
        gradients(gelu_of_product, torch.randn(6, 8), torch.randn(8))
    assert not list(folder.glob("graph-*")) and cache.cache_folder() == folder
