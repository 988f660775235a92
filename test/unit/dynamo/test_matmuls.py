"""Models whose matrix products are parts of kernels, forward and backward: all of them, or those that are
faster so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import shardc
from shardc.backends.benchmark import benchmark
from shardc.backends.benchmark.benchmark import Choice
from shardc.compiler import measured_regions
from shardc.passes.fuse.grouping import region


class Block(nn.Module):
    """A feed-forward block with dropout and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(24, 70), nn.Linear(70, 24), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.drop(nn.functional.gelu(self.up(x)))) * 0.5


def _step(model: nn.Module, x: torch.Tensor, matmuls: str) -> list[torch.Tensor]:
    """The result and the gradients."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    made = torch.compile(model, backend="shardc", options={"matmuls": matmuls})(x)
    return [made, *torch.autograd.grad(made.square().sum(), list(model.parameters()))]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [1, 7, 129])
def test_a_block_with_dropout(rows: int) -> None:
    """The same elements are dropped, whichever kernel draws them."""
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, rows, 24)
    for found, wanted in zip(_step(model, x, "generated"), _step(model, x, "extern"), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * wanted.abs().max().item())


def test_bf16_is_as_near_to_f64_as_eager_is() -> None:
    torch.manual_seed(0)
    model, x = Block().eval().bfloat16(), torch.randn(2, 40, 24, dtype=torch.bfloat16)
    exact = copy.deepcopy(model).double()(x.double())
    found, eager = _step(model, x, "generated")[0], model(x)
    assert (found.double() - exact).norm() <= 1.1 * (eager.double() - exact).norm()


@pytest.fixture
def all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is too small to be measured, or was measured before."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(region, "SMALL_FLOPS", 0)


@pytest.fixture
def fastest(all_sizes: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says which of ``calls`` and ``kernels`` is to be found the faster."""

    def set_(name: str) -> None:
        monkeypatch.setattr(measured_regions, "decide", lambda *_: Choice(name, {}))

    return set_


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["calls", "kernels"])
def test_the_faster_way_is_taken(fastest: Callable[[str], None], name: str, programs: list[str]) -> None:
    fastest(name)
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(2, 9, 24)
    wanted = model(x)
    found = _step(model, x, "auto")
    torch.testing.assert_close(found[0], wanted, rtol=1e-5, atol=1e-5)
    for gradient, theirs in zip(
        found[1:], torch.autograd.grad(wanted.square().sum(), list(model.parameters())), strict=True
    ):
        torch.testing.assert_close(gradient, theirs, rtol=1e-5, atol=1e-5 * theirs.abs().max().item())
    assert all(("mm(" in text) == (name == "calls") for text in programs) and len(programs) == 2


@pytest.mark.slow
def test_choices_are_made_once(all_sizes: None, monkeypatch: pytest.MonkeyPatch, programs: list[str]) -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, 9, 24)
    found = _step(model, x, "auto")

    def measure(*given: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(benchmark, "measure", measure)
    monkeypatch.setattr("shardc.dynamo.program_cache.load", lambda key: None)
    again = _step(model, x, "auto")
    kept = [text.partition("def ")[2] for text in programs]
    assert kept[:2] == kept[2:] and all(map(torch.equal, found, again))


@pytest.mark.slow
def test_explained(all_sizes: None) -> None:
    model, x = Block().eval(), torch.randn(2, 9, 24)
    found = shardc.explain_fusion(model, x)
    ((up, verdict), (down, _)), text = found.graphs[0][1].choices, str(found)
    assert (up.target, down.target) == ("aten.addmm", "aten.addmm")
    assert (
        verdict.why.startswith("measured: ")
        and " us as calls, " in verdict.why
        and " us as kernels" in verdict.why
    )
    assert "matmuls and attention: " in text and verdict.why in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", ["SMALL_FLOPS", "LARGE_FLOPS"])
def test_what_is_too_small_or_too_large_is_a_call(
    all_sizes: None, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    flops = 2 * 2 * 9 * 24 * 70
    for value, measured in ((flops, True), (flops + 1 if limit == "SMALL_FLOPS" else flops - 1, False)):
        torch._dynamo.reset()
        monkeypatch.setattr(region, limit, value)
        report = shardc.explain_fusion(Block().eval(), torch.randn(2, 9, 24)).graphs[0][1]
        assert len(report.choices) == (2 if measured else 0)
        assert measured or [op.target for op in report.staying].count("aten.addmm") == 2


def attention(q: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


@pytest.mark.parametrize("name", ["calls", "kernels"])
def test_attention_of_few_queries_is_chosen(
    fastest: Callable[[str], None], name: str, programs: list[str]
) -> None:
    """Forward and backward. With more queries a kernel is known to be faster."""
    fastest(name)
    q = torch.randn(2, 2, 3, 8, requires_grad=True)
    found, wanted = torch.compile(attention, backend="shardc")(q), attention(q)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(result.square().sum(), q) for result in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    calls = ["_scaled_dot_product_flash_attention_for_cpu" in text for text in programs]
    assert calls == [name == "calls"] * 2  # the sum of three gradients is a kernel anyway


@pytest.mark.parametrize(("queries", "measured"), [(3, True), (40, False)])
def test_attention_is_measured(all_sizes: None, queries: int, measured: bool) -> None:
    found = shardc.explain_fusion(attention, torch.randn(2, 2, queries, 8))
    why = [verdict.why for _, verdict in found.graphs[0][1].choices]
    assert len(why) == measured and all(" us as calls, " in text and " us as kernels" in text for text in why)
