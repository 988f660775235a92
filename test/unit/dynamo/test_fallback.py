"""Graphs that shardc cannot compile: correct results from ATen, and one warning per cause."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_mlir.extras import fx_importer

from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.dynamo import backend as dynamo
from shardc.dynamo import compile_program as graph_compiler

from .conftest import assert_identical


def _run(f: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> list[str]:
    """Calls ``f`` under the backend, checks each result against eager's, and returns what was said."""
    run = torch.compile(f, backend="shardc", options={"fuse": False}, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for args in calls:
            assert_identical(run(*args), f(*args))
    return [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]


def test_the_backend_is_found_by_its_name() -> None:
    assert "shardc" in torch._dynamo.list_backends()
    assert torch._dynamo.lookup_backend("shardc") is dynamo.shardc_backend


def test_nothing_is_said_of_a_graph_that_compiles() -> None:
    assert _run(lambda x: x.softmax(-1), (torch.randn(3),)) == []


def test_numbers_in_place_of_tensors_do_not_fall_back() -> None:
    """``torch.div`` with a rounding mode takes tensors only, so that its number becomes one."""
    x, n = torch.randn(3, 5), torch.randint(-9, 9, (3, 5))

    def f(x: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        modes = ("floor", "trunc")
        return [torch.div(t, by, rounding_mode=mode) for t in (x, n) for by in (2, 2.5) for mode in modes]

    assert _run(f, (x, n)) == []


def test_a_complex_number_falls_back_with_op_and_line() -> None:
    def rotate(x: torch.Tensor) -> torch.Tensor:
        y = torch.view_as_complex(x).lerp(torch.ones(3, dtype=torch.complex64), 1j)  # the line
        return torch.view_as_real(y)

    (text,) = _run(rotate, (torch.randn(3, 2),))
    line = next(
        i for i, row in enumerate(Path(__file__).read_text().splitlines(), 1) if row.endswith("# the line")
    )
    assert "aten.lerp" in text and "complex number" in text
    assert f"{__file__}:{line}" in text
    assert "try:" in text


def test_a_cause_is_said_once_whatever_the_number_of_graphs() -> None:
    def spectrum(x: torch.Tensor) -> torch.Tensor:
        x = torch.fft.rfft(x).lerp(torch.ones((), dtype=torch.complex64), 1j)
        torch._dynamo.graph_break()
        return x.lerp(torch.ones((), dtype=torch.complex64), 1j).abs()

    assert len(_run(spectrum, (torch.randn(8),), (torch.randn(6),), dynamic=False)) == 1
    assert (
        _run(
            lambda x: torch.fft.rfft(x).lerp(torch.ones((), dtype=torch.complex64), 1j).real,
            (torch.randn(6),),
        )
        == []
    )


def test_what_aot_autograd_cannot_trace_runs_eagerly() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.abs() + 1
        return y.polygamma_(1) * 2  # "Found a custom (non-ATen) operator whose output has alias annotations"

    (text,) = _run(f, (torch.randn(3),), (torch.randn(3),))
    assert "AOTAutograd" in text and "aten::polygamma_" in text


def test_each_size_compiles_without_dynamic_shapes() -> None:
    calls = [(torch.randn(n, 4),) for n in (2, 3, 5)]
    assert _run(lambda x: x.relu() + 1, *calls, dynamic=False) == []


def test_control_flow_operators() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    (text,) = _run(f, (torch.ones(3),), (-torch.ones(3),))
    assert "higher-order" in text


def test_an_argument_that_the_dialect_refuses() -> None:
    (text,) = _run(lambda x: x.count_nonzero(dim=0) + 1, (torch.tensor(3.0),))
    assert "aten.count_nonzero" in text and "MLIR rejects it" in text and __file__ in text


def test_dropout_under_checkpointing_draws_what_eager_draws() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        block = lambda x: torch.nn.functional.dropout(x.sin(), 0.5)  # noqa: E731
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)

    x = torch.randn(30, requires_grad=True)
    eager = torch.autograd.grad(f(x).sum(), x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShardcFallbackWarning)
        compiled = torch.compile(f, backend="shardc", options={"fuse": False, "random": "torch"})
        assert_identical(torch.autograd.grad(compiled(x).sum(), x), eager)


def test_a_custom_op_compiles_and_one_that_writes_falls_back() -> None:
    @torch.library.custom_op("shardc_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @torch.library.custom_op("shardc_test::double_", mutates_args=("x",))
    def double_(x: torch.Tensor) -> None:
        x.mul_(2)

    def writes(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        double_(y)
        return y

    assert _run(lambda x: twice(x) + 1, (torch.randn(3),)) == []
    assert len(_run(writes, (torch.randn(3),))) == 1


def test_sparse_tensors() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse().sum() + x.sum()

    _run(f, (torch.eye(3),))


def test_a_bug_of_ours_is_said_and_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("in a pass")

    monkeypatch.setattr(graph_compiler, "run", broken)
    (text,) = _run(lambda x: x + 1, (torch.ones(2),), (torch.ones(3),), dynamic=False)
    assert "ZeroDivisionError: in a pass" in text and "report" in text


def test_an_import_that_differs_from_the_graph_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the importer took one op for another: the check of every call finds it."""

    def to_cos(node: torch.fx.Node) -> torch.fx.Node:
        node.target = torch.ops.aten.cos.default
        return node

    monkeypatch.setitem(fx_importer.NODE_CANONICALIZE, torch.ops.aten.sin.default, to_cos)
    (text,) = _run(lambda x: x.sin() + 2, (torch.ones(2),))
    assert "aten.sin" in text and "imported as aten.cos" in text


def test_a_diagnostic_made_an_error_stops_the_call() -> None:
    run = torch.compile(lambda x: x.as_strided((2,), (2,)) + 1, backend="shardc")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShardcFallbackWarning)
        with pytest.raises(
            torch._dynamo.exc.BackendCompilerFailed, match=r"uncompiled, because of aten\.as_strided"
        ):
            run(torch.randn(4))
