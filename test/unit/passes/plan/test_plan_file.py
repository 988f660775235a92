"""Saved plans: a written plan reads back equal, and a plan that does not fit is refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardc.diagnostics.passes.plan import BadPlanFile
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.passes.plan.column_row import Cut
from shardc.passes.plan.plan import Argument, Plan
from shardc.passes.plan.plan_file import fingerprint, plan_to_json, read_plan
from shardc.passes.plan.presets import Setting, read_preset

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 2), MeshAxis("micro", 2, "time")))
ARGUMENTS = [
    Argument("param", "up", (32, 16)),
    Argument("opt_state", "up/exp_avg", (32, 16)),
    Argument("input", "ids", (8, 64)),
]


@pytest.fixture
def plan() -> Plan:
    return read_preset("zero3*sequence", Setting(ARGUMENTS, MESH, {"up": Cut(0)}))


@pytest.fixture
def saved(plan: Plan, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_to_json(plan, MESH, ARGUMENTS)))
    return path


def test_round_trip(plan: Plan, saved: Path) -> None:
    assert read_plan(saved, MESH, ARGUMENTS) == plan


def test_it_is_json_with_schema_and_version(saved: Path) -> None:
    data = json.loads(saved.read_text())
    assert (data["schema"], data["version"], data["text"]) == ("shardc-plan", 1, "zero3*sequence")
    assert data["mesh"] == [["data", 2, "space"], ["tensor", 2, "space"], ["micro", 2, "time"]]


def test_fingerprint_sees_names_roles_and_shapes() -> None:
    found = {
        fingerprint(ARGUMENTS),
        fingerprint(ARGUMENTS[:-1]),
        fingerprint([Argument("param", "up", (32, 17)), *ARGUMENTS[1:]]),
        fingerprint([Argument("buffer", "up", (32, 16)), *ARGUMENTS[1:]]),
        fingerprint([Argument("param", "down", (32, 16)), *ARGUMENTS[1:]]),
    }
    assert len(found) == 5


def _without(field: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda data: {name: value for name, value in data.items() if name != field}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without("schema"), 'it has no "schema": "shardc-plan"'),
        (lambda d: d | {"schema": "other-plan"}, 'it has no "schema": "shardc-plan"'),
        (lambda d: [d], 'it has no "schema": "shardc-plan"'),
        (lambda d: d | {"version": 2}, "it has version 2; this shardc reads version 1"),
        (_without("version"), "it has version None"),
        (lambda d: d | {"model": "0" * 64}, "it was made for another model, optimizer or batch"),
        (_without("mesh"), "it has no 'mesh'"),
        (lambda d: d | {"mesh": [["data", 4, "space"], *d["mesh"][1:]]}, "it was made for the mesh data=4"),
        (lambda d: d | {"mesh": 3}, "mesh is 3, not a list"),
        (_without("entries"), "it has no 'entries'"),
        (
            lambda d: d | {"entries": [{"role": "param", "name": "up"}]},
            "entries[0] has no 'dims'",
        ),
        (
            lambda d: d | {"entries": [d["entries"][0] | {"refine": [["x", 1, 2]]}]},
            "entries[0].refine[0][0] is 'x', not an integer",
        ),
    ],
)
def test_what_does_not_fit(saved: Path, change: Callable[[dict[str, Any]], Any], said: str) -> None:
    saved.write_text(json.dumps(change(json.loads(saved.read_text()))))
    _refused(saved, said)


def test_cut_off(saved: Path) -> None:
    saved.write_text(saved.read_text()[:200])
    _refused(saved, "it is not whole JSON (line ")


def test_not_text(saved: Path) -> None:
    saved.write_bytes(b"\xff\xfe\x00")
    _refused(saved, "it can't be read")


def test_missing(tmp_path: Path) -> None:
    _refused(tmp_path / "nowhere.json", "there is no such file")


def test_a_folder(tmp_path: Path) -> None:
    _refused(tmp_path, "it can't be read")


def test_another_model(saved: Path) -> None:
    with pytest.raises(BadPlanFile, match="another model"):
        read_plan(saved, MESH, [*ARGUMENTS, Argument("param", "down", (16, 32))])


def test_another_mesh(saved: Path) -> None:
    with pytest.raises(BadPlanFile, match="made for the mesh data=2, tensor=2, micro=2"):
        read_plan(saved, Mesh((MeshAxis("data", 2),)), ARGUMENTS)


def _refused(path: Path, said: str) -> None:
    with pytest.raises(BadPlanFile) as caught:
        read_plan(path, MESH, ARGUMENTS)
    message = str(caught.value)
    assert said in message
    assert str(path) in message
    assert "save the plan again" in message
