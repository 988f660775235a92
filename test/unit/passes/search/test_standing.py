"""A few equal layers stand for more layers: costs and memory are those of all layers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.passes.manager.attributes import phase_of
from shardc.passes.search.choose import Found
from shardc.passes.search.repetitions import STANDING
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

LAYERS = 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(256), nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Towers(nn.Module):
    """Two runs of equal layers of two kinds, as in models of an encoder and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(Block() for _ in range(LAYERS))
        self.second = nn.ModuleList(nn.Linear(256, 256) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.first:
            x = layer(x)
        for layer in self.second:
            x = torch.tanh(layer(x))
        return x.square().mean()


class Wide(Block):
    """A block that is wider, as the first layers of some mixtures of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(256, 4096), nn.Linear(4096, 256)


class WideFirst(nn.Module):
    """A list of four wide layers and others: as many wide ones as layers stand for those left out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([*(Wide() for _ in range(4)), *(Block() for _ in range(LAYERS))])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


class DroppingBlock(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.dropout(self.down(torch.relu(self.up(self.norm(x)))), 0.1)


class Dropping(nn.Module):
    """Layers that each draw random numbers, as those of GPT-2 and BERT do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DroppingBlock() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


class Turned(nn.Module):
    """Layers that multiply by a view of a table, as those with rotary positions do: the first makes it for
    all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.register_buffer("table", torch.ones(256))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) * self.table.cos().unsqueeze(0)
        return x.square().mean()


@cache
def pricer(stands: bool, kind: type[nn.Module] = Towers, rows: int = 64) -> Pricer:
    with torch.device("meta"):
        model = kind()
        batch = (torch.empty(rows, 256),)
    made = Pricer(
        Question("towers", model, torch.optim.AdamW(model.parameters()), batch),
        cluster=find_cluster("h100-2x2"),
    )
    made.versions.stands = stands
    return made


@pytest.mark.parametrize("kind", [Towers, WideFirst, Dropping, Turned])
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "candidate",
    [
        Candidate({"data": 4}, "auto"),
        Candidate({"data": 2, "tensor": 2}, "auto", 4),
        Candidate({"pipe": 2, "data": 2}, "pipeline*auto", 4),
        replace(Candidate({"data": 4}, "auto"), recompute="full"),
    ],
    ids=lambda candidate: candidate.text,
)
def test_few_layers_cost_what_all_cost(candidate: Candidate, kind: type[nn.Module]) -> None:
    few, whole = pricer(True, kind).found(candidate), pricer(False, kind).found(candidate)
    assert isinstance(few, Found) and isinstance(whole, Found)
    assert few.nodes <= 1.05 * whole.nodes
    assert few.floor_s == pytest.approx(whole.floor_s, rel=0.02)
    assert few.solution.seconds == pytest.approx(whole.solution.seconds, rel=0.05)
    assert few.held_bytes == pytest.approx(whole.held_bytes, rel=0.15)
    assert pricer(True, kind).versions.stands


def test_what_the_first_layer_makes_for_all_is_in_no_layer() -> None:
    step = pricer(True, Turned).graph(Candidate({"data": 4}, "auto"))
    nodes, folded = step.program.nodes, step.folded
    aside = [nodes[number] for number in sorted(folded.aside)]
    assert [n.spec.target for n in aside if phase_of(n.op) == "forward"] == ["aten.cos", "aten.unsqueeze"]
    forward = [number for number, node in enumerate(nodes) if phase_of(node.op) == "forward"]
    assert [weight for weight, _ in folded.runs(forward)] == [LAYERS / STANDING, 1.0]


def test_gradients_are_those_of_all_layers() -> None:
    """The last layer's backward differs, so that backward and update fold layers differently."""
    step = pricer(True, Turned).graph(Candidate({"data": 4}, "auto"))
    phases = [phase_of(node.op) for node in step.program.nodes]
    backward = [number for number, phase in enumerate(phases) if phase == "backward"]
    assert (LAYERS - 1) / (STANDING - 1) in {step.folded.weights[number] for number in backward}
    made = {step.call_node[number] for number in backward}
    late = [change for change in step.changes if change.when.is_late and change.made.node in made]
    assert sum(change.weight for change in late) == pytest.approx(6 * LAYERS)


def test_layers_that_draw_random_numbers_are_priced_from_few() -> None:
    candidate, made = Candidate({"data": 2, "tensor": 2}, "auto"), pricer(True, Dropping, 16384)
    few, whole = made.price(candidate), made.price(candidate, whole=True)
    assert made.versions.stands and not few.is_whole and whole.is_whole
    assert few.fullest.peak_bytes == pytest.approx(whole.fullest.peak_bytes, rel=0.05)
    times = [priced.on(find_cluster("h100-2x2")).time.seconds for priced in (few, whole)]
    assert times[0] == pytest.approx(times[1], rel=0.01)


@pytest.mark.parametrize("width", [512, 4096])
def test_sums_over_micro_batches_cost_what_prices_say(width: int) -> None:
    """Sums of small gradients are in the last cache, those of large ones in memory."""
    layers = (nn.Linear(width, width, bias=False) for _ in range(4))
    model = nn.Sequential(*layers, Mean()).to("meta").bfloat16()
    batch = (torch.empty(64, width, device="meta", dtype=torch.bfloat16),)
    question = Question("sums", model, torch.optim.SGD(model.parameters(), lr=0.1), batch)
    for count in (1, 4, 8):
        asked, cluster = Pricer(question, cluster=find_cluster("h100")), find_cluster("h100")
        candidate = Candidate({"nvlink": 8}, "auto", count)
        found, price = asked.found(candidate), asked.price(candidate).on(cluster).time
        assert isinstance(found, Found)
        assert found.solution.seconds == pytest.approx(price.seconds, rel=0.06)
        assert found.solution.bound_s <= price.seconds * 1.001


def test_cuts_of_equal_products_alternate() -> None:
    """Eight equal products with few rows: columns, then rows, with one all-reduce for two of them."""
    inner = (part for _ in range(8) for part in (nn.Linear(1024, 1024, bias=False), nn.ReLU()))
    model = nn.Sequential(nn.Linear(64, 1024), *inner, nn.Linear(1024, 64), Mean()).to("meta")
    batch = (torch.empty(16, 64, device="meta"),)
    question = Question("products", model, torch.optim.AdamW(model.parameters()), batch)
    asked = Pricer(question, cluster=find_cluster("cpu-4"))
    tensor = asked.price(Candidate({"tensor": 4}, "tensor")).on(find_cluster("cpu-4"))
    found = asked.found(Candidate({"data": 4}, "auto"))
    assert isinstance(found, Found)
    assert found.solution.seconds <= tensor.time.seconds


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.square().mean()
