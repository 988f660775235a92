"""``shardc.search_plan``: its options compile, and the step is proved equal to one device."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.passes.search import NoPlanYet, NothingSearched, NotSearched
from shardc.passes.search.answer.explain import Explain
from shardc.passes.search.choose import Found, Unfit, search
from shardc.planning import pricer
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(12))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return (x - y).square().mean()


def asked() -> tuple[nn.Module, torch.optim.Optimizer, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.Adam(model.parameters(), lr=0.01), (torch.randn(16, 64), torch.randn(16, 64))


@pytest.mark.slow
def test_what_is_found_compiles_and_is_right() -> None:
    model, optimizer, batch = asked()
    found = shardc.search_plan(model, optimizer, batch, cluster="h100-2x2")
    assert len(model.layers) == 12
    assert found.seconds > 0
    assert found.peak_bytes > 0
    text = str(found)
    assert "searched: " in text
    assert "Net" in text
    step = shardc.compile_step(model, optimizer, batch, fuse=False, **found.options)
    assert step.check().passed


@pytest.mark.slow
def test_parts_of_the_choice_are_fixed() -> None:
    found = shardc.search_plan(*asked(), cluster="h100-2x2", micro_batches=2, recompute="none")
    assert found.options["micro_batches"] == 2
    assert found.options["recompute"] == "none"
    with pytest.raises(NotSearched, match="recompute of single modules"):
        shardc.search_plan(*asked(), cluster="h100-2x2", recompute="layers")


@pytest.fixture
def hears_interrupts() -> Iterator[None]:
    """Ctrl-C as in a foreground process: a shell starts those in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("hears_interrupts")
def test_an_interrupt_ends_the_search_with_the_best_plan_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    keep, kept = Pricer.keep, list[Candidate]()

    def kept_once(pricer: Pricer, candidate: Candidate, *given: Any, **options: Any) -> None:
        keep(pricer, candidate, *given, **options)
        kept.append(candidate)
        if len(kept) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Pricer, "keep", kept_once)
    picked = shardc.search_plan(*asked(), cluster="h100-2x2")
    assert len(kept) == 1
    assert "the search ended: interrupted" in str(picked)
    assert picked.seconds > 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_runners_up_are_searched_once_for_the_plan_that_is_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_here = list[str]()

    def searched(*given: Any, explain: Explain = "", **options: Any) -> Found | Unfit:
        asked_here.append(explain)  # of this process alone
        return search(*given, explain=explain, **options)

    monkeypatch.setattr(pricer, "search", searched)
    picked = shardc.search_plan(*asked(), cluster="h100-2x2")
    assert asked_here[-1] == "runners-up"
    assert {*asked_here[:-1]} == {"plan"}
    assert "products sharded otherwise" in str(picked)


def test_a_time_limit_is_kept_and_checked() -> None:
    with pytest.raises(NoPlanYet, match="time limit of 1e-06 s") as raised:
        shardc.search_plan(*asked(), cluster="h100-2x2", search_seconds=1e-6)
    assert "--search-seconds" in raised.value.render()
    with pytest.raises(BadArgument, match="search_seconds"):
        shardc.search_plan(*asked(), cluster="h100-2x2", search_seconds=0)


@pytest.mark.slow
def test_the_limit_of_a_compile_is_that_of_its_search() -> None:
    options = {"mesh": {"data": 2}, "cluster": "h100", "fuse": False}
    with pytest.raises(NoPlanYet, match="time limit of 1e-06 s"):
        shardc.compile_step(*asked(), plan="auto", search_seconds=1e-6, **options)
    step = shardc.compile_step(*asked(), plan="auto", search_seconds=60.0, **options)
    assert step.check().passed
    with pytest.raises(NothingSearched, match="search_seconds applies to a search"):
        shardc.compile_step(*asked(), plan="data", search_seconds=10.0, **options)
