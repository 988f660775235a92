"""The page of ``shardc plan --html`` in a real browser: loads, folds and clicks, without an error."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import pytest
import torch
from chromium import MISSING, PROGRAM, Chromium, Tab, chromium

from shardc.cost.cluster.names import find_cluster
from shardc.planning.auto.front import Front, front_json
from shardc.planning.auto.sensitivity import Changed, Sensitivity, sensitivity_json
from shardc.planning.candidates import Candidate
from shardc.planning.page.page import page
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, Sizes, read_config
from shardc.runtime.check import Json

pytestmark = [pytest.mark.processes, pytest.mark.skipif(PROGRAM is None, reason=MISSING)]
CONFIG = """{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64}"""
CLUSTER = find_cluster("h100-8")
MESH = {"data": 4, "tensor": 2}
VIEWS = [(1280, False), (1280, True), (400, False), (400, True)]


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Question:
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(CONFIG)
    return read_config(path, Sizes(8, 32), torch.bfloat16)


@pytest.fixture(scope="module")
def prices(question: Question) -> list[Price]:
    pricer = Pricer(question)
    found = [pricer.price(Candidate(MESH, plan)) for plan in ("zero3*tensor", "data*tensor")]
    found.append(pricer.price(Candidate({"pipe": 2, "data": 4}, "pipeline*data", 2)))
    return sorted((priced.on(CLUSTER) for priced in found), key=lambda price: price.order)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as started:
        yield started


def opened(
    browser: Chromium,
    folder: Path,
    question: Question,
    price: list[Price],
    view: tuple[int, bool],
    more: Json | None = None,
) -> Tab:
    path = folder / "page.html"
    path.write_text(page(question, price, more))
    return Tab(browser, path, *view)


def only(prices: list[Price], plan: str) -> list[Price]:
    return [price for price in prices if price.priced.candidate.plan == plan]


@pytest.mark.parametrize("view", VIEWS)
def test_it_opens_without_an_error(
    browser: Chromium, tmp_path: Path, question: Question, prices: list[Price], view: tuple[int, bool]
) -> None:
    tab = opened(browser, tmp_path, question, prices, view)
    shown = tab.value("[...document.querySelectorAll('main > *')].map(e => e.id)")
    assert shown[:4] == ["verdict", "time", "memory", "mesh"] and {"weights", "what-if", "plans"} <= {*shown}
    assert "✓ fits" in tab.value("document.getElementById('verdict').textContent")
    # nothing is wider than the window, and text stands out from what is behind it
    assert tab.value("document.documentElement.scrollWidth") == view[0]
    assert tab.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 27)" if view[1] else "rgb(246, 247, 249)"
    )
    assert tab.problems == []


def test_a_click_on_the_curve_says_what_is_alive(
    browser: Chromium, tmp_path: Path, question: Question, prices: list[Price]
) -> None:
    tab = opened(browser, tmp_path, question, prices, VIEWS[0])
    assert ": the peak" in tab.value("document.getElementById('alive').textContent")
    tab.click("#curve .u-over", x=0.02)
    early = tab.value("document.getElementById('alive').textContent")
    assert "alive" in early and ": the peak" not in early
    tab.click("#memory button")
    assert ": the peak" in tab.value("document.getElementById('alive').textContent")
    assert tab.problems == []


def test_a_searched_plan_has_its_runner_ups(browser: Chromium, tmp_path: Path, question: Question) -> None:
    price = Pricer(question, None, CLUSTER).price(Candidate(MESH, "auto")).on(CLUSTER)
    tab = opened(browser, tmp_path, question, [price], VIEWS[0])
    text = tab.value("document.getElementById('searched').textContent")
    assert "no plan takes less than" in text
    assert "limit the plan" in text
    assert "mlp.gate_proj" in text
    assert tab.value("document.documentElement.scrollWidth") == VIEWS[0][0]
    assert tab.problems == []


def test_questions_to_a_search_have_sections(
    browser: Chromium, tmp_path: Path, question: Question, prices: list[Price]
) -> None:
    base, other = prices[0], prices[1]
    rows = [Changed("links=2x", other, base), Changed("batch=2x", problem="a script has its own batch")]
    more = {
        "front": front_json(Front([base, other], "a test ends it")),
        "sensitivity": sensitivity_json(Sensitivity(base, rows)),
    }
    tab = opened(browser, tmp_path, question, prices, VIEWS[0], more)
    front = tab.value("document.getElementById('front').textContent")
    assert "a test ends it" in front
    assert other.priced.candidate.plan in front
    changes = tab.value("document.getElementById('sensitivity').textContent")
    assert "links=2x" in changes
    assert "a script has its own batch" in changes
    assert tab.value("document.documentElement.scrollWidth") == VIEWS[0][0]
    assert tab.problems == []


def test_layers_fold(browser: Chromium, tmp_path: Path, question: Question, prices: list[Price]) -> None:
    tab = opened(browser, tmp_path, question, only(prices, "zero3*tensor"), VIEWS[0])
    summary = (
        "[...document.querySelectorAll('#tree summary')].find(e => e.textContent.includes('layers.0-3'))"
    )
    assert "4 equal" in tab.value(f"{summary}.textContent")
    tab.value(f"{summary}.id = 'layers', 1")
    before = tab.value("document.getElementById('layers').parentElement.open")
    tab.click("#layers", x=0.05)
    assert tab.value("document.getElementById('layers').parentElement.open") is not before
    assert tab.problems == []


def test_grids_show_the_slices_of_each_rank(
    browser: Chromium, tmp_path: Path, question: Question, prices: list[Price]
) -> None:
    (price,) = only(prices, "zero3*tensor")
    tab = opened(browser, tmp_path, question, [price], VIEWS[0])
    tab.value("document.querySelectorAll('details').forEach(d => { d.open = true; }), 1")
    placement = price.priced.placement
    leaf = next(a.leaf for a in placement.arguments if a.leaf.name == "model.embed_tokens.weight")
    for rank in range(prod(MESH.values())):
        tab.value(
            f"(() => {{ const r = document.getElementById('rank'); r.value = {rank};"
            "r.dispatchEvent(new Event('input')); })()"
        )
        held = ", ".join(f"{s.start}:{s.stop}" for s in leaf.slices(placement.mesh, rank))
        assert f"rank {rank} holds [{held}]" in tab.value("document.querySelector('.weight').textContent")
    # the first of eight rows
    tab.click(".weight svg", x=0.5, y=0.06)
    assert "block 0, 0: rank 0" in tab.value("document.querySelector('.weight').textContent")
    assert tab.problems == []


def test_sliders_and_plans_answer(
    browser: Chromium, tmp_path: Path, question: Question, prices: list[Price]
) -> None:
    tab = opened(browser, tmp_path, question, prices, VIEWS[2])
    assert "as it is" in tab.value("document.getElementById('answer').textContent")
    tab.click("#what-if input[data-name=links]", x=0.01)
    answer = tab.value("document.getElementById('answer').textContent")
    assert "a step (+" in answer
    assert "0.5\u00d7" in tab.value("document.getElementById('what-if').textContent")
    tab.click("#what-if input[data-name=memory-rate]", x=0.99)  # both are changed now
    texts = "document.getElementById('what-if').textContent"
    assert "0.5\u00d7" in tab.value(texts) and "2\u00d7" in tab.value(texts)
    assert tab.value("document.getElementById('answer').textContent") != answer
    tab.click("#what-if input[data-name=flops]", x=0.99)  # a third puts the first back
    assert "0.5\u00d7" not in tab.value(texts)
    tab.click("#plans tbody tr:nth-child(3) button")
    other = prices[2].priced.candidate
    assert f"{other.plan} on" in tab.value("document.getElementById('diff').textContent")
    assert tab.problems == []


def test_collectives_are_hidden_or_not(
    browser: Chromium, tmp_path: Path, question: Question, prices: list[Price]
) -> None:
    tab = opened(browser, tmp_path, question, only(prices, "zero3*tensor"), VIEWS[0])
    heads = tab.value("[...document.querySelectorAll('#collectives th')].map(e => e.textContent)")
    assert heads[-2:] == ["takes", "not hidden"]
    cells = tab.value(
        "[...document.querySelectorAll('#collectives tbody tr')].map(e => e.lastChild.textContent)"
    )
    assert any("s" in cell and cell != "hidden" for cell in cells) and all(cells)
    assert tab.problems == []


def test_a_pipeline_has_its_timeline(
    browser: Chromium, tmp_path: Path, question: Question, prices: list[Price]
) -> None:
    tab = opened(browser, tmp_path, question, only(prices, "pipeline*data"), VIEWS[3])
    assert tab.value("document.querySelectorAll('#timeline rect title').length") == 2 * 2 * 2
    tab.value(
        "(() => { const s = document.querySelector('#memory select'); s.value = 1;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert "alive" in tab.value("document.getElementById('alive').textContent")
    assert tab.problems == []
