"""Reports of a compile to the user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardc.diagnostics.base import Remark
from shardc.report.plan_report import Report, layout, make_report


def test_every_argument_with_its_layout_and_reason(mlp: Callable) -> None:
    report = mlp("zero3", {"data": 2}).report
    rows = {(role, name): (shape, cut, why) for role, name, shape, cut, why in report.shardings}
    assert rows["param", "0.weight"] == ("[32, 16]", "[data, *]", "zero3")
    assert rows["opt_state", "0.weight/exp_avg"] == ("[32, 16]", "[data, *]", "zero3")
    assert rows["input", "input"] == ("[8, 16]", "[data, *]", "zero3")
    assert {role for role, _ in rows} == {"param", "opt_state", "input"}


def test_what_follows_from_the_plan_says_through_which_op(mlp: Callable) -> None:
    report = mlp("tensor", {"tensor": 2}).report
    whys = {name: why for role, name, _, _, why in report.shardings if role == "param"}
    assert whys["0.weight"] == "tensor"
    assert whys["2.weight"].startswith("follows 0.weight (tensor), through ")


def test_local_bytes_are_of_one_device(mlp: Callable) -> None:
    whole, cut = mlp("data", {"data": 2}).report, mlp("zero3", {"data": 2}).report
    assert cut.local_bytes["param"] * 2 == whole.local_bytes["param"]
    assert whole.local_bytes["input"] == 8 * 16 * 4 // 2
    assert whole.local_bytes["buffer"] == 0


def test_rendered(mlp: Callable) -> None:
    program = mlp("data", {"data": 2}, micro_batches=2)
    remarks = [Remark("ReplicatedOp", "aten.foo has no rule", "model.py:3")]
    text = make_report(
        program.compiled.rank_module, "data", remarks, {"trace": 1.0, "dist-propagate": 0.25}
    ).render()
    words = " ".join(text.split())
    for expected in (
        "mesh data 2 x micro 2 (time)",
        "plan data",
        "param 7.2 kB",
        "backward data all_reduce",
        "[*, *]",
        "[ReplicatedOp] aten.foo has no rule (at model.py:3)",
        "compiled in 1.25 s",
    ):
        assert expected in words


def test_a_step_that_sends_nothing_says_so() -> None:
    text = Report("data 1", "data", [], {"param": 0}, [], [], {}).render()
    assert "none" in text.split()
    assert "remarks" not in text


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([[], []], "[*, *]"),
        ([[["data", 1, 2], ["tensor", 1, 2]], []], "[data+tensor, *]"),
        ([[["data", 2, 2]]], "[data/2]"),
        ([], "[]"),
    ],
)
def test_layout(dims: list[list[list[object]]], text: str) -> None:
    assert layout({"dims": dims, "partial": []}) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1.5e6, "1.5 MB"), (2e9, "2.0 GB"), (3e15, "3000.0 TB")],
)
def test_sizes(size: float, text: str) -> None:
    report = Report("data 1", "data", [], {"param": int(size)}, [], [], {})
    assert f"param {text}" in " ".join(report.render().split())


def test_state_that_is_cut_twice_says_where_each_axis_came_from(mlp: Callable) -> None:
    report = mlp("zero1*tensor", {"data": 2, "tensor": 2}).report
    whys = {name: why for role, name, _, _, why in report.shardings if role == "opt_state"}
    assert whys["0.weight/exp_avg"].startswith("zero1; tensor follows 0.weight (tensor), through ")
    assert "plan: zero1; tensor follows its parameter (plan: tensor)" in report.render()
    assert "optimizer:" not in report.render()
