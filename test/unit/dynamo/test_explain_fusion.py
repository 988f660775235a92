"""Fusion under ``torch.compile``: explained, forbidden and forced by ops and source lines."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import shardc
from shardc.compiler.warn_once import warned
from shardc.diagnostics.dynamo import ShardcFallbackWarning


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    warned.clear()
    yield


def f(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).tanh()
    return (y + 1).exp()


LINE = f.__code__.co_firstlineno
FIRST, SECOND = (f"test_explain_fusion.py:{LINE + n}" for n in (1, 2))
X = torch.linspace(-1, 1, 32).view(4, 8)


def kernels(explanation: Any, graph: int = 0) -> list[list[str]]:
    return [[op.target for op in kernel.ops] for kernel in explanation.graphs[graph][1].kernels]


def test_forward_and_backward_with_source_lines() -> None:
    found = shardc.explain_fusion(f, X.clone().requires_grad_())
    assert [phase for phase, _ in found.graphs] == ["forward", "backward"]
    assert kernels(found) == [["aten.mul.Scalar", "aten.tanh", "aten.add.Scalar", "aten.exp"]]
    text = str(found)
    assert text.startswith("forward: 1 kernels replace 4 of 4 calls: 4 launches become 1, ")
    assert FIRST in text and SECOND in text and "\n\nbackward: 1 kernels" in text


@pytest.mark.parametrize("edge", [f"{FIRST}+{SECOND}", f"tanh@{FIRST}+{SECOND}", f"aten.tanh+add@{SECOND}"])
def test_lines_stand_for_all_their_ops(edge: str) -> None:
    found = shardc.explain_fusion(f, X, options={"forbid_fusion": [edge]})
    assert kernels(found) == [["aten.mul.Scalar", "aten.tanh"], ["aten.add.Scalar", "aten.exp"]]
    assert f"not fused: forbidden by {edge}" in str(found)


def test_forbidden_edges_hold_in_every_process(programs: list[str]) -> None:
    """The second compile finds the program on disk."""
    for _ in range(2):
        torch._dynamo.reset()
        options = {"forbid_fusion": [f"{FIRST}+{SECOND}"]}
        with warnings.catch_warnings():
            warnings.simplefilter("error", ShardcFallbackWarning)
            found = torch.compile(f, backend="shardc", options=options)(X.clone().requires_grad_())
            found.sum().backward()
        torch.testing.assert_close(found, f(X))
    assert programs[0].count(" = kernel(") == 2


def test_a_compiled_module_can_be_explained() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
    found = shardc.explain_fusion(torch.compile(model, backend="shardc"), X)
    assert kernels(found) == [["aten.gelu", "aten.native_layer_norm"]]
    assert "aten.addmm" in [op.target for op in found.graphs[0][1].staying]


def test_what_cannot_be_forced_is_an_error() -> None:
    """And no silent fallback to ATen."""
    with pytest.raises(Exception, match=r"cannot share one kernel: .*is left to ATen"):
        options = {"force_fusion": ["mm+tanh"], "matmuls": "extern"}
        torch.compile(lambda x: (x @ x.t()).tanh(), backend="shardc", options=options)(X)


def test_a_matmul_is_forced_into_a_kernel() -> None:
    """Whichever way is faster."""
    found = shardc.explain_fusion(lambda x: (x @ x.t()).tanh(), X, options={"force_fusion": ["mm+tanh"]})
    assert kernels(found) == [["aten.mm", "aten.tanh"]]


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (["0.1+0.2"], "numbers are unique within one program"),
        (["tanh"], "two names"),
        ("exp+tanh", "forbid_fusion is 'exp.tanh', not a list of edges"),
        ([3], "forbid_fusion is a list of 3, not a list of edges"),
    ],
)
def test_edges_that_are_none(edges: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        torch.compile(f, backend="shardc", options={"forbid_fusion": edges})(X)


def test_edges_that_fit_nothing_are_told_of() -> None:
    """One of the backward graph alone is none of those."""
    with pytest.warns(ShardcFallbackWarning, match=r"'exp\+gelu' matches no two ops"):
        torch.compile(f, backend="shardc", options={"forbid_fusion": ["exp+gelu"]})(X)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShardcFallbackWarning)
        options = {"forbid_fusion": ["tanh_backward+mul"]}
        torch.compile(f, backend="shardc", options=options)(X.clone().requires_grad_()).sum().backward()


def test_the_log_has_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="shardc.compiler.compilation"):
        torch.compile(f, backend="shardc")(X)
    assert "forward: 1 kernels replace 4 of 4 calls" in caplog.text
