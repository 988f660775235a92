"""Graphs of several meshes and schedules on one reading of a step equal graphs of steps of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import FORMS
from shardc.dialects.dist.mesh import Mesh
from shardc.options.presets import AUTO
from shardc.passes.search.graph import Graph
from shardc.passes.search.step.on_mesh import StepOnMesh
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.candidates import PIPE, Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question
from shardc.planning.searched_step import SearchedStep


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x.square().mean()


class Padded(nn.Module):
    """Its padded convolutions are rewritten before a search, so that meshes share no reading."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = nn.functional.pad(layer(x), (1, 1, 1, 1))
        return x.square().mean()


def candidates() -> list[Candidate]:
    piped = [
        Candidate({PIPE: 2, "infiniband": 2, "nvlink": 2}, f"pipeline*{AUTO}", 4, form=form) for form in FORMS
    ]
    plain = [
        Candidate({"infiniband": 4, "nvlink": 2}, AUTO, count, recompute)
        for count, recompute in ((1, "none"), (2, "none"), (1, "full"))
    ]
    return [plain[0], *piped, *plain[1:], plain[0]]


def pricer(net: Callable[[], nn.Module], batch: tuple[int, ...]) -> Pricer:
    with torch.device("meta"):
        model, given = net(), (torch.empty(batch),)
    question = Question("net", model, torch.optim.AdamW(model.parameters()), given, None)
    return Pricer(question, cluster=find_cluster("h100-2x4"))


def numbers(graph: Graph) -> list[np.ndarray]:
    edges = [*sorted(graph.edges.items()), *sorted(graph.late.items())]
    return [*graph.costs, *graph.memory, *graph.cover, *(seconds for _, seconds in edges)]


def floors(step: StepGraph) -> tuple[float, float]:
    return step.floor_s, step.floor_weights_s


@pytest.mark.parametrize(("net", "batch"), [(Layers, (64, 64)), (Padded, (64, 4, 8, 8))])
def test_graphs_do_not_depend_on_what_was_searched_before(
    net: Callable[[], nn.Module], batch: tuple[int, ...]
) -> None:
    shared = pricer(net, batch)
    for candidate in candidates():
        assert_equal(shared.graph(candidate), pricer(net, batch).graph(candidate))


@pytest.mark.parametrize(("net", "batch"), [(Layers, (64, 64)), (Padded, (64, 4, 8, 8))])
def test_what_a_small_mesh_decides_holds_on_larger_ones(
    net: Callable[[], nn.Module], batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not used where axes fill a dim, as the batch of 64 in two of the meshes."""
    meshes = [
        ({"data": 2, "infiniband": 2, "nvlink": 2}, AUTO, (2, 8, 16, 32)),
        ({PIPE: 2, "nvlink": 4}, f"pipeline*{AUTO}", (4, 16, 64)),
        ({"infiniband": 2, "nvlink": 4}, AUTO, (1, 32)),
    ]
    asked = [Candidate(mesh, plan, count) for mesh, plan, counts in meshes for count in counts]
    read, read_at = SearchedStep._read, list[Mesh]()

    def counted(self: SearchedStep, mesh: Mesh, plan: str) -> StepOnMesh:
        read_at.append(mesh)
        return read(self, mesh, plan)

    monkeypatch.setattr(SearchedStep, "_read", counted)
    shared = pricer(net, batch)
    found = [shared.graph(candidate) for candidate in asked]
    full = [mesh for mesh in read_at if any(axis.size > 2 for axis in mesh.axes)]
    assert len(read_at) == 6 and [mesh.axes[-1].size for mesh in full] == [32, 64]
    monkeypatch.setattr(SearchedStep, "_small", lambda *_: None)
    for candidate, graph in zip(asked, found, strict=True):
        assert_equal(graph, pricer(net, batch).graph(candidate))


def assert_equal(found: StepGraph, alone: StepGraph) -> None:
    assert floors(found) == floors(alone)
    assert found.graph.edges.keys() == alone.graph.edges.keys()
    for one, other in zip(numbers(found.graph), numbers(alone.graph), strict=True):
        np.testing.assert_array_equal(one, other)


def test_schedules_differ() -> None:
    shared = pricer(Layers, (64, 64))
    costs = {shared.graph(candidate).floor_s for candidate in candidates()[1:5]}
    assert len(costs) == sum(not form.balances for form in FORMS)  # what balances takes no longer in a search
