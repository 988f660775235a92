"""A saved plan compiles to the program that it was saved from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shardc.diagnostics.passes.plan import BadPlanFile

MESH = {"data": 2, "tensor": 2}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "plan", ["zero3*tensor", "zero1*sequence", {"*.weight": [["data", "tensor"]], "input": ["data"]}]
)
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_same_program(mlp: Callable, tmp_path: Path, plan: object, micro_batches: int) -> None:
    first = mlp(plan, MESH, micro_batches=micro_batches)
    (tmp_path / "plan.json").write_text(json.dumps(first.compiled.plan_json))
    second = mlp(str(tmp_path / "plan.json"), MESH, micro_batches=micro_batches)
    for level in ("2-annotated", "3-rank"):
        assert second.compiled.levels[level] == first.compiled.levels[level]
    assert second.compiled.plan_json == first.compiled.plan_json


def test_another_mesh_or_model_is_refused(mlp: Callable, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(mlp("data", {"data": 2}).compiled.plan_json))
    with pytest.raises(BadPlanFile, match="made for the mesh data=2"):
        mlp(str(path), {"data": 4})
    with pytest.raises(BadPlanFile, match="another model"):
        mlp(path, {"data": 2}, bias=True)
