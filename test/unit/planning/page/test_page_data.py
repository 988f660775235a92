"""Data and text of the page: content, size, and protection against users' text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from planned import write_config

from shardc.backends.torch.memory.curve import Log
from shardc.cost.cluster.names import find_cluster
from shardc.planning.candidates import Candidate
from shardc.planning.page.data import page_json
from shardc.planning.page.page import assembled, json_in_html, page
from shardc.planning.page.points import FACTORS
from shardc.planning.page.tree import module_tree
from shardc.planning.placement import ArgumentPlacement, PlacedArgument
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, Sizes, read_config
from shardc.planning.what_if import read_what_if
from shardc.planning.write_json import prices_json
from shardc.runtime.check import Json

NODE = find_cluster("h100-8")
ZERO = Candidate({"data": 2, "tensor": 2}, "zero3*tensor")
PIPELINE = Candidate({"pipe": 2, "data": 2}, "pipeline*data", 4)


@pytest.fixture(scope="module")
def pricer(tmp_path_factory: pytest.TempPathFactory) -> Pricer:
    return Pricer(read_config(write_config(tmp_path_factory.mktemp("config")), Sizes(8, 32), torch.bfloat16))


@pytest.fixture(scope="module")
def price(pricer: Pricer) -> Price:
    return pricer.price(ZERO).on(NODE)


@pytest.fixture(scope="module")
def data(pricer: Pricer, price: Price) -> Json:
    return page_json(pricer.question, [price])


def held_text(text: str) -> Json:
    return json.loads(re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)[0])


@pytest.mark.slow
def test_prices_are_those_of_the_json(pricer: Pricer, price: Price, data: Json) -> None:
    assert data["schema"] == 1 and data["prices"] == prices_json(pricer.question, [price])
    assert held_text(page(pricer.question, [price])) == json.loads(json.dumps(data))


def test_the_curve_ends_in_the_peak(price: Price, data: Json) -> None:
    (curve,) = data["memory"]
    assert max(curve["bytes"]) == price.priced.fullest.peak_bytes
    assert curve["bytes"][0] == sum(price.priced.fullest.given.values()) and curve["made"][0] == 0
    assert curve["made"] == sorted(curve["made"]) and len(curve["made"]) <= 1001
    for size, held in zip(curve["bytes"], curve["held"], strict=True):
        assert 0 < sum(held[1::2]) <= size
    phases = {phase for phase, _ in curve["places"]}
    assert {"forward", "backward", "optimizer"} <= phases


def test_the_mesh_has_the_bytes_of_its_links(price: Price, data: Json) -> None:
    sent = {tuple(row["axes"]): row["bytes"] for row in data["mesh"]["sent"]}
    assert sent == pytest.approx(dict(price.priced.sent))
    assert sum(row["bytes"] for row in data["collectives"]) == pytest.approx(sum(sent.values()))
    assert data["mesh"]["sent"][0]["links"][0]["level"] == "nvlink"


def test_sliders_have_their_points(price: Price, data: Json) -> None:
    for points in data["what_if"].values():
        assert [point["factor"] for point in points] == list(FACTORS)
        assert points[2]["step_s"] == price.time.seconds
    assert data["what_if"]["memory-rate"][0]["step_s"] > price.time.seconds
    assert data["what_if"]["memory"][4]["capacity_bytes"] == 2 * price.capacity_bytes


def test_two_changes_at_once(price: Price, data: Json) -> None:
    pairs = data["what_if_pairs"]
    assert set(pairs) == {"links*flops", "links*memory-rate", "flops*memory-rate"}
    both = read_what_if("links=2x").cluster(read_what_if("flops=0.5x").cluster(price.cluster))
    assert pairs["links*flops"]["2*0.5"]["step_s"] == price.priced.on(both).time.seconds
    assert sum(len(points) for points in pairs.values()) == 3 * 16


def test_what_is_not_hidden_of_collectives_is_the_wait_for_axes(price: Price, data: Json) -> None:
    waits = sum(
        seconds for cause, seconds in price.time.causes.items() if {*cause.split("*")} <= {*ZERO.mesh}
    )
    assert sum(row["exposed_s"] for row in data["collectives"]) == pytest.approx(waits)
    assert all(row["exposed_s"] >= 0 for row in data["collectives"]) and waits > 0
    assert all(row["exposed_s"] <= row["seconds"] * 1.001 for row in data["collectives"] if row["seconds"])


def test_a_pipeline_has_a_timeline_and_stages(pricer: Pricer) -> None:
    price = pricer.price(PIPELINE).on(NODE)
    data = page_json(pricer.question, [price])
    assert [len(spans) for spans in data["timeline"]["ranks"]] == [8, 8]
    assert len(data["memory"]) == 2 and data["mesh"]["pipe"] == "pipe"
    (model, head) = data["tree"]
    assert model["stages"] == [0, 1] and head["stages"] == [1]
    sent = {tuple(row["axes"]): row["bytes"] for row in data["mesh"]["sent"]}
    # bf16 activations of a sample and of its gradient: 32 tokens of 64; 8 samples on 2 ranks of data
    assert sent["pipe",] >= 4 * 32 * 64 * 2


def test_text_of_the_user_stays_text(pricer: Pricer, price: Price) -> None:
    bad = "</script><script>alert(1)</script><!-- {{script}} & \u2028"
    question = replace(pricer.question, name=bad)
    text = page(question, [price])
    assert held_text(text)["prices"]["model"]["name"] == bad
    assert "alert(1)" in text and "<script>alert" not in text
    assert text.count("<script") == page(pricer.question, [price]).count("<script")
    assert json.loads(json_in_html({"a": bad})) == {"a": bad}


def test_the_page_loads_nothing(pricer: Pricer, price: Price) -> None:
    text = page(pricer.question, [price])
    assert "default-src 'none'" in text and "uPlot (v1.6.32)" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text) and "{{" not in re.sub(
        r"<script.*?</script>", "", text
    )


def test_large_models_stay_below_2_mb(data: Json, price: Price) -> None:
    """126 layers, 200,000 tensors at 700 lines, a pipeline of 16 ranks, 100 plans."""
    placed = price.priced.placement
    once = [a for a in placed.arguments if ".layers.1." not in a.leaf.name]
    many = [_renamed(a, n) for n in range(126) for a in once if ".layers.0." in a.leaf.name]
    tree = module_tree(ArgumentPlacement(placed.mesh, many))
    assert tree[0]["name"] == "model.layers.0-125" and tree[0]["repeat"] == 126
    lines = [f"# transformers/models/llama/modeling_llama.py:{n // 2}" for n in range(1400)]
    log = Log()
    log.add(1 << 36, 0)
    for n in range(200_000):
        log.add((n % 977 + 1) << 20, n * 7 % 1400 + 1)
        if n > 3000:
            log.add(-(((n - 3000) % 977 + 1) << 20), (n - 3000) * 7 % 1400 + 1)
    curve = log.curve(lines)
    columns = {
        **data["memory"][0],
        "places": [[p.phase, p.where] for p in curve.places],
        "made": [m.made for m in curve.moments],
        "bytes": [m.size_bytes for m in curve.moments],
        "place": [m.place for m in curve.moments],
        "held": [[n for pair in m.held for n in pair] for m in curve.moments],
    }
    spans = [[["F", 3, n, 0.123456, 0.234567] for n in range(375)] for _ in range(16)]
    large = {
        **data,
        "tree": tree,
        "memory": [columns],
        "timeline": {"ranks": spans, "all_ranks": 16, "step_s": 1.0, "bubble": 0.1},
        "prices": {**data["prices"], "plans": data["prices"]["plans"] * 100},
    }
    assert len(curve.moments) <= 1001
    assert len(assembled(large, "large").encode()) < 2e6


def _renamed(argument: PlacedArgument, layer: int) -> PlacedArgument:
    name = argument.leaf.name.replace(".layers.0.", f".layers.{layer}.")
    return replace(argument, leaf=replace(argument.leaf, name=name))


def test_a_plan_that_fits_is_shown_first(pricer: Pricer, price: Price) -> None:
    question: Question = pricer.question
    small = replace(NODE, devices=tuple(replace(d, memory_bytes=1000.0) for d in NODE.devices))
    data = page_json(question, [price.priced.on(small), price])
    assert [plan["fits"] for plan in data["prices"]["plans"]] == [True, False]


def test_every_file_of_the_page_is_package_data() -> None:
    import tomllib

    root = Path(__file__).resolve().parents[4]
    folder = root / "python" / "shardc"
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["shardc"]
    held = {path for pattern in patterns for path in folder.glob(pattern)}
    there = {
        p
        for p in (folder / "planning" / "page").rglob("*")
        if p.is_file() and p.suffix not in (".py", ".pyc")
    }
    assert there and there <= held
