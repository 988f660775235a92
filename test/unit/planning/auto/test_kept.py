"""Searches that are kept: the same question is answered at once, another one is searched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import shardc
from shardc.cache import disk
from shardc.planning.auto import kept
from shardc.planning.auto import searches as searches_module
from shardc.planning.auto.search import SearchedPlan


@pytest.fixture(autouse=True)
def searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The clusters that were searched, with a cache folder of the test's own."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SHARDC_PLAN_CACHE", "1")
    monkeypatch.setattr(kept, "added", set())
    made: list[str] = []
    real = searches_module.search_to_fit

    def noted(given, find, price, cluster, *more, **how):  # pyright: ignore[reportMissingParameterType]
        made.append(cluster.name)
        return real(given, find, price, cluster, *more, **how)

    monkeypatch.setattr(searches_module, "search_to_fit", noted)
    yield made


def found(width: int = 16, cluster: str = "h100-2", **options: object) -> SearchedPlan:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = lambda out, _: out.square().mean()  # noqa: E731
    batch = (torch.randn(8, 8),)
    return shardc.search_plan(model, optimizer, batch, cluster=cluster, loss=loss, **options)  # pyright: ignore[reportArgumentType]


def test_the_same_question_is_answered_at_once(searches: list[str]) -> None:
    first = found()
    second = found()
    assert searches == ["h100-2"]
    assert second.options == first.options
    assert str(second) == str(first)
    assert (second.seconds, second.peak_bytes) == (first.seconds, first.peak_bytes)
    assert second.around == first.around


@pytest.mark.slow
def test_another_question_is_searched(searches: list[str]) -> None:
    found()
    found(width=32)
    found(cluster="h100-4")
    found(micro_batches=2)
    assert searches == ["h100-2", "h100-2", "h100-4", "h100-2"]


def test_what_is_kept_can_be_left_out(searches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_PLAN_CACHE", "0")
    found()
    found()
    assert len(searches) == 2


def test_an_entry_of_no_use_is_searched_again(searches: list[str], tmp_path: Path) -> None:
    first = found()
    (entry,) = (tmp_path / "cache").glob("plan-*.json")
    disk.keep(entry.name, b'{"candidate": {}}')
    assert str(found()) == str(first)
    assert len(searches) == 2
