"""Plans for a cluster that loses nodes or devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardc.commands.plan import plan
from shardc.commands.plans.request import PlanRequest
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.passes.search import ElasticNotSearched
from shardc.planning.auto.elastic import left_of

SCRIPT = """
import torch

def build():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, (torch.randn(12, 8),), lambda out, _: out.square().mean()
"""


@pytest.mark.parametrize(
    ("name", "lost", "left"),
    [
        ("h100-8x4", 2, ["h100-8x3", "h100-8x2"]),
        ("h100-8x2", 3, ["h100-8x1"]),
        ("h100-4", 2, ["h100-3", "h100-2"]),
        ("h100-1", 1, []),
    ],
)
def test_what_is_left_of_a_cluster(name: str, lost: int, left: list[str]) -> None:
    assert left_of(find_cluster(name), lost) == [find_cluster(other) for other in left]


def test_plans_for_fewer_devices_at_once(tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "plans.json"
    script.write_text(SCRIPT)
    text = plan(PlanRequest(script, ["h100-3"], plans=["auto"], elastic=2, json_file=file))
    assert "plans for fewer devices, for the same batch:" in text
    found = json.loads(file.read_text())["elastic"]
    assert [row["devices"] for row in found] == [3, 2, 1]
    assert [row["cluster"] for row in found] == ["h100-3", "h100-2", "h100-1"]
    assert all(row["step_s"] > 0 and 0 <= row["gap"] < 1 and row["peak_bytes"] > 0 for row in found)
    with pytest.raises(ElasticNotSearched):
        plan(PlanRequest(script, ["h100-3"], plans=["data"], elastic=2))
