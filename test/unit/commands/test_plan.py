"""``shardc plan``: configs and scripts, rankings, changes, what cannot be planned."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planned import write_config

import shardc
from shardc.commands.plan import plan
from shardc.commands.plans.request import PlanRequest
from shardc.cost.cluster import names
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.plan import UnknownPreset
from shardc.diagnostics.passes.search import NoPlanYet, NothingSearched, NotSearched, SearchWithoutCluster
from shardc.diagnostics.planning import BatchDoesNotDivide, NotAModel, SizesOfScript
from shardc.options.presets import AUTO

SCRIPT = """
import torch
from torch import nn

def build():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters()), torch.ones(8, 8), lambda out, _: out.square().mean()
"""


@pytest.mark.slow
def test_a_config_on_a_mesh(tmp_path: Path) -> None:
    path, out = write_config(tmp_path), tmp_path / "plan.json"
    text = plan(
        PlanRequest(
            path,
            ["h100", "a100-80"],
            [{"data": 4}],
            ["data", "zero3"],
            length=32,
            what_if=["links=2x", "length=16", "batch=2x"],
            json_file=out,
        )
    )
    assert "4 of 4 plans fit" in text and "LlamaForCausalLM" in text
    assert [line.split()[0] for line in text.splitlines()[-3:]] == ["links=2x", "length=16", "batch=2x"]
    found = json.loads(out.read_text())["plans"]
    assert {(p["cluster"], p["plan"]) for p in found} == {
        (cluster, name) for cluster in ("h100", "a100-80") for name in ("data", "zero3")
    }
    assert [p["step_s"] for p in found] == sorted(p["step_s"] for p in found)


@pytest.mark.slow
def test_all_plans_of_a_cluster(tmp_path: Path) -> None:
    text = plan(PlanRequest(write_config(tmp_path), ["h100-2"], plans=["presets"], length=16, batch=2))
    # data 2 by four presets, tensor 2 by two, and a pipeline of two stages
    assert "of 7 plans" in text or "7 of 7 plans fit" in text


@pytest.mark.parametrize(
    ("changes", "plans"),
    [
        ({}, [AUTO]),
        ({"options": {"search_seconds": 9.0, "recompute": "full"}}, [AUTO]),
        ({"plans": ["zero3"]}, ["zero3"]),
        ({"meshes": [{"data": 4}]}, []),
        ({"clusters": ["h100-4", "a100-80-4"]}, []),
        ({"every_plan": True}, []),
        ({"options": {"constraints": {"head": "data"}}}, []),
    ],
)
def test_a_question_without_a_plan_is_a_search_if_one_can_answer_it(
    changes: dict[str, Any], plans: list[str]
) -> None:
    settled = PlanRequest(**{"source": Path("config.json"), "clusters": ["h100-4"], **changes}).settled
    assert [*settled.plans] == plans


def test_without_a_plan_one_is_searched(tmp_path: Path) -> None:
    text = plan(PlanRequest(write_config(tmp_path), ["h100-2x2"], length=16, batch=8))
    assert "searched:" in text and "plan auto on" in text


def test_a_script_has_its_own_batch(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    text = plan(PlanRequest(path, ["h100"], [{"data": 2}], ["data"]))
    assert "Sequential" in text and "tokens" not in text
    with pytest.raises(SizesOfScript, match="--batch"):
        plan(PlanRequest(path, ["h100"], [{"data": 2}], ["data"], batch=4))


@pytest.mark.slow
def test_what_cannot_be_planned_is_listed_beside_what_can(tmp_path: Path) -> None:
    request = PlanRequest(
        write_config(tmp_path), ["h100"], [{"data": 2}], ["data", "experts:data"], length=16
    )
    text = plan(request)
    assert "not possible" in text and "experts:data" in text


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"source": Path("model.txt")}, NotAModel),
        ({"plans": ["tensr"], "meshes": [{"data": 2}]}, UnknownPreset),
        ({"clusters": ["h100-8x8"], "plans": ["presets"], "batch": 3}, BatchDoesNotDivide),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, object], error: type[ShardcError], tmp_path: Path) -> None:
    given = {"source": write_config(tmp_path), "clusters": ["h100"], "length": 16, **changes}
    with pytest.raises(error):
        plan(PlanRequest(**given))  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_the_largest_batch_fits_and_the_next_does_not(tmp_path: Path) -> None:
    path, small = write_config(tmp_path), tmp_path / "small.yaml"
    text = (Path(names.READY) / "h100.yaml").read_text()
    small.write_text(re.sub(r"(memory_bytes:) \S+", r"\1 6e6", text, count=1))
    mesh = [{"data": 2}]
    answer = plan(PlanRequest(path, [str(small)], mesh, ["data"], length=32, batch=2, largest="batch"))
    found = re.search(r"largest batch that fits, in steps of 2: (\d+)", answer)
    assert found is not None
    for batch, said in ((int(found[1]), "fits:"), (int(found[1]) + 2, "does not fit:")):
        assert said in plan(PlanRequest(path, [str(small)], mesh, ["data"], length=32, batch=batch))


@pytest.mark.slow
def test_a_page_of_the_best_plan(tmp_path: Path) -> None:
    path, out = write_config(tmp_path), tmp_path / "plan.html"
    plan(PlanRequest(path, ["h100"], [{"data": 2}], ["data", "zero3"], length=32, html_file=out))
    text = out.read_text()
    assert text.startswith("<!doctype html>") and "LlamaForCausalLM: shardc plan" in text


@pytest.mark.slow
def test_choices_that_could_be_others(tmp_path: Path) -> None:
    asked = ["recompute=full", "precision=f32", "reduce-dtype=float32", "micro-batches=2"]
    config = write_config(tmp_path)
    text = plan(PlanRequest(config, ["h100"], [{"data": 4}], ["zero3"], batch=8, length=32, what_if=asked))
    assert [line.split()[0] for line in text.splitlines()[-4:]] == asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("megabytes", "said"),
    [
        (120, "the smallest tried change that fits: recompute=selective ("),
        (80, "the smallest tried change that fits: recompute=full ("),
        (40, "the smallest tried change that fits: batch=0.125x ("),
        (10, "none of the tried changes fits: use more devices, or devices of 125.8 MB for this plan"),
    ],
)
def test_what_does_not_fit_is_told_the_smallest_change_that_does(
    megabytes: int, said: str, tmp_path: Path
) -> None:
    ready, small = Path(shardc.__file__).parent / "cost/cluster/ready/h100.yaml", tmp_path / "small.yaml"
    small.write_text(re.sub(r"(memory_bytes:) \S+", rf"\1 {megabytes}e6", ready.read_text(), count=1))
    config = write_config(tmp_path, num_hidden_layers=4)
    text = plan(PlanRequest(config, [str(small)], [{"data": 2}], ["data"], batch=256, length=64))
    assert said in text


def test_a_script_keeps_its_batch_under_what_if(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    with pytest.raises(SizesOfScript, match="--what-if batch="):
        plan(PlanRequest(path, ["h100"], [{"data": 2}], ["data"], what_if=["batch=2x"]))


@pytest.mark.slow
def test_meshes_are_searched_for_auto(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    text = plan(PlanRequest(config, ["h100-2x2"], plans=["auto"], length=16, batch=8))
    assert re.search(r"searched: \d+ of \d+ choices .* \(gap \d+\.\d%\); the search ended: ", text)
    assert "pipeline*auto on pipe 2" in text or "auto on infiniband 2 x nvlink 2" in text
    with pytest.raises(SearchWithoutCluster, match="needs the cluster"):
        plan(PlanRequest(config, ["h100-2x2", "a100-80-4"], plans=["auto"], length=16, batch=8))


@pytest.mark.slow
def test_a_limit_of_searches_needs_a_search(tmp_path: Path) -> None:
    request = PlanRequest(
        write_config(tmp_path),
        ["h100-2x2"],
        plans=["auto"],
        length=16,
        batch=8,
        options={"search_seconds": 1e-6},
    )
    with pytest.raises(NoPlanYet, match="time limit of 1e-06 s"):
        plan(request)
    with pytest.raises(NothingSearched, match="search_seconds applies to a search"):
        plan(replace(request, plans=["zero3"]))
    beside = replace(request, meshes=[{"data": 4}], plans=["data", "auto"], options={"search_seconds": 60})
    assert "2 of 2 plans fit" in plan(beside)


def test_a_search_answers_more_questions(tmp_path: Path) -> None:
    """The front of memory against time, and what changes the answer: as text, JSON, and on the page."""
    path, held, html = tmp_path / "train.py", tmp_path / "plan.json", tmp_path / "plan.html"
    path.write_text(SCRIPT)
    request = PlanRequest(
        path,
        ["h100-2"],
        plans=["auto"],
        micro_batches=1,
        options={"recompute": "none"},
        json_file=held,
        html_file=html,
        front=True,
        sensitivity=True,
    )
    text = plan(request)
    assert "memory against time: " in text
    assert "what changes the answer, each searched again: " in text
    found = json.loads(held.read_text())
    points = found["front"]["points"]
    assert [p["needed_bytes"] for p in points] == sorted((p["needed_bytes"] for p in points), reverse=True)
    rows = {row["change"]: row for row in found["sensitivity"]["changes"]}
    assert list(rows) == [f"{name}={x}x" for name in ("links", "memory", "batch") for x in (0.5, 2)]
    base = found["sensitivity"]["base"]["step_s"]
    assert rows["links=2x"]["step_s"] <= base <= rows["links=0.5x"]["step_s"]
    assert rows["memory=2x"]["step_s"] == rows["memory=0.5x"]["step_s"] == base
    assert rows["batch=2x"]["step_s"] is None
    assert "--batch" in rows["batch=2x"]["problem"]
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', html.read_text(), re.DOTALL)
    assert data is not None
    shown = json.loads(data[1])
    assert (shown["front"], shown["sensitivity"]) == (found["front"], found["sensitivity"])


@pytest.mark.parametrize("option", ["front", "sensitivity"])
def test_questions_to_a_search_need_one(tmp_path: Path, option: str) -> None:
    request = PlanRequest(write_config(tmp_path), ["h100"], plans=["zero3"], **{option: True})
    with pytest.raises(NothingSearched, match=f"{option} applies to a search"):
        plan(request)
    with pytest.raises(NothingSearched, match="around the cuts: shares is given"):
        given = {"shares": {"data": (3, 1)}}
        plan(replace(request, clusters=["h100-2"], plans=["auto"], meshes=[{"data": 2}], options=given))


def test_constraints_name_axes_of_a_mesh(tmp_path: Path) -> None:
    given = {"constraints": {"model.norm": ("data", None, None)}}
    with pytest.raises(NotSearched, match="constraints without a mesh"):
        plan(PlanRequest(write_config(tmp_path), ["h100-2"], plans=["auto"], options=given))


@pytest.mark.slow
def test_a_search_keeps_the_meshes_that_are_given(tmp_path: Path) -> None:
    config, held = write_config(tmp_path), tmp_path / "plan.json"
    meshes = [{"data": 4}, {"pipe": 2, "data": 2}, {"data": 2, "tensor": 2}]
    request = PlanRequest(
        config, ["h100-2x2"], meshes[:1], ["auto"], length=16, batch=8, json_file=held, front=True
    )
    found: dict[str, dict[str, object]] = {}
    for name, (given, word) in {
        "flat": (meshes[:1], "auto"),
        "either": ([meshes[0], meshes[2]], "auto"),
        "stages": (meshes[1:2], "pipeline*auto"),
    }.items():
        text = plan(replace(request, meshes=given, plans=[word], front=name == "flat"))
        assert "searched: " in text
        (row,) = json.loads(held.read_text())["plans"]
        assert row["mesh"] in given
        assert row["plan"] == word
        found[name] = row
    assert found["either"]["step_s"] <= found["flat"]["step_s"]
    parts = json.loads(held.read_text())["plans"][0]["micro_batches"]
    assert parts >= 2
    mixed = plan(replace(request, meshes=meshes[1:], plans=["pipeline*auto", "zero3"], front=False))
    assert "not possible:" in mixed
    assert "pipeline*auto on data 2 x tensor 2" in mixed


@pytest.mark.slow
def test_what_a_mesh_leaves_open_is_searched_until_it_fits(tmp_path: Path) -> None:
    """Without recomputation a step needs more than a device has; the user gave only the mesh."""
    small = tmp_path / "small.yaml"
    config = write_config(tmp_path, hidden_size=256, intermediate_size=1024, num_hidden_layers=8)
    request = PlanRequest(config, ["h100-2"], [{"data": 2}], ["auto"], length=256, batch=16)
    fixed = replace(
        request, micro_batches=1, options={"recompute": "none"}, json_file=tmp_path / "fixed.json"
    )
    plan(fixed)
    needed = json.loads((tmp_path / "fixed.json").read_text())["plans"][0]["needed_bytes"]
    text = (Path(names.READY) / "h100.yaml").read_text()
    small.write_text(re.sub(r"(memory_bytes:) \S+", rf"\1 {0.6 * needed:.6e}", text, count=1))
    answer = plan(replace(request, clusters=[f"{small}"]))
    assert re.search(r"^fits: ", answer, re.MULTILINE)


@pytest.mark.slow
def test_recomputation_that_is_asked_for_is_kept(tmp_path: Path) -> None:
    request = PlanRequest(
        write_config(tmp_path),
        ["h100-2x2"],
        plans=["auto"],
        micro_batches=2,
        length=16,
        batch=8,
        options={"recompute": "full"},
    )
    assert "2 micro-batches, recompute full" in plan(request)
    with pytest.raises(NotSearched, match="recompute of single modules"):
        plan(replace(request, options={"recompute": ("model.layers.*",)}))


@pytest.mark.slow
def test_plans_that_are_left_out_do_not_change_the_answer(tmp_path: Path) -> None:
    """A device holds a whole model's parameters, but not its optimizer's state with them."""
    small, out = tmp_path / "small.yaml", tmp_path / "plan.json"
    text = (Path(names.READY) / "h100.yaml").read_text()
    text = re.sub(r"(memory_bytes:) \S+", r"\1 160e6", text, count=1)
    small.write_text(text)
    config = write_config(tmp_path, hidden_size=1024, intermediate_size=4096)
    found: list[dict[str, object]] = []
    for every in (False, True):
        meshes = [{"data": 4}, {"tensor": 4}]
        request = PlanRequest(
            config, [str(small)], meshes, length=16, batch=4, every_plan=every, json_file=out
        )
        answer = plan(request)
        assert ("more plans were not compiled" in answer) is not every
        assert "does not fit" not in answer
        found.append(json.loads(out.read_text())["plans"][0])
    assert found[0] == found[1]


def test_no_remedy_is_tried_where_state_alone_does_not_fit(tmp_path: Path) -> None:
    small = tmp_path / "small.yaml"
    text = (Path(names.READY) / "h100.yaml").read_text()
    small.write_text(re.sub(r"(memory_bytes:) \S+", r"\1 1e5", text, count=1))
    answer = plan(PlanRequest(write_config(tmp_path), [str(small)], [{"data": 2}], ["data"], length=16))
    assert "does not fit" in answer and "parameters and optimizer state alone need" in answer
