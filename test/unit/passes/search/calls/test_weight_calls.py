"""Calls that only gradients of weights need, and what a schedule that delays them changes in a search."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import form_of
from shardc.cost.work import flops
from shardc.passes.manager.attributes import phase_of
from shardc.passes.search.calls.weight_calls import weight_calls
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

WIDTH, ROWS, LAYERS = 1024, 4096, 4
LINEAR = 2 * ROWS * WIDTH * 4 * WIDTH
"""FLOP of one of the two products of a block."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Tied(nn.Module):
    """Its first and last layer have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.block = nn.Embedding(512, WIDTH), Block()

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.linear(self.block(self.words(ids)), self.words.weight)


def graph(net: Callable[[], nn.Module], batch: Tensor, candidate: Candidate) -> StepGraph:
    with torch.device("meta"):
        model, given = net(), batch.to("meta")
    optimizer = torch.optim.AdamW(model.parameters())
    question = Question("net", model, optimizer, (given,), lambda out, _: out.square().mean(), ROWS)
    return Pricer(question, cluster=find_cluster("h100-8")).graph(candidate)


def blocks() -> nn.Module:
    return nn.Sequential(*(Block() for _ in range(LAYERS)))


def work(step: StepGraph) -> dict[tuple[str, bool], float]:
    """Return the FLOP of products, by phase and by whether only gradients of weights need them."""
    found: dict[tuple[str, bool], float] = {}
    weights = weight_calls(step.program)
    for number, node in enumerate(step.program.nodes):
        key = phase_of(node.op), number in weights
        found[key] = found.get(key, 0.0) + (0 if node.op.name.startswith("dist.") else flops(node.spec))
    return found


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_half_of_the_products_of_backward_are_of_weights(recompute: str) -> None:
    candidate = Candidate({"pipe": 2, "nvlink": 4}, "pipeline*auto", 4, recompute)
    found = work(graph(blocks, torch.empty(ROWS, WIDTH), candidate))
    assert found["backward", True] == found["backward", False] == 2 * LAYERS * LINEAR
    assert found.get(("recompute", True), 0.0) == 0.0


def test_both_gradients_of_a_tied_weight_are_of_weights() -> None:
    ids = torch.zeros(ROWS, dtype=torch.int64)
    found = work(graph(Tied, ids, Candidate({"pipe": 2, "nvlink": 4}, "pipeline*auto", 4)))
    assert found["backward", True] == 2 * LINEAR + 2 * ROWS * WIDTH * 512


def test_what_weights_need_fills_the_bubble_and_takes_memory() -> None:
    """In ZB-H1 the work of weights' gradients takes less of a step; the last stage holds what it reads."""
    rows, split = torch.empty(ROWS, WIDTH), form_of("zb-h1")
    assert split is not None
    plain = Candidate({"pipe": 4, "nvlink": 2}, "pipeline*auto", 8, "full")
    held = Candidate(plain.mesh, plain.plan, 8, "full", form=split)
    first, second = (graph(blocks, rows, candidate) for candidate in (plain, held))
    ranks, count = 4, 8
    rest_s = first.floor_s - first.floor_weights_s
    assert second.floor_s - second.floor_weights_s == pytest.approx(rest_s)
    ratio = split.weight_slots(ranks, count) / split.slots(ranks, count)
    assert second.floor_weights_s == pytest.approx(ratio * first.floor_weights_s)
    assert second.graph.points == first.graph.points + 1
    assert second.graph.least_bytes > 1.1 * first.graph.least_bytes


def test_interleaved_stages_hold_more_of_what_forward_keeps() -> None:
    rows, form = torch.empty(ROWS, WIDTH), form_of("interleaved", 2)
    assert form is not None
    plain = Candidate({"pipe": 2, "nvlink": 4}, "pipeline*auto", 8)
    first = graph(blocks, rows, plain)
    second = graph(blocks, rows, Candidate(plain.mesh, plain.plan, 8, form=form))
    ratio = form.slots(2, 8) / (8 + 2 - 1)
    assert second.floor_s == pytest.approx(ratio * first.floor_s)
    grown = second.graph.least_bytes / first.graph.least_bytes
    assert 1.0 < grown < form.in_flight(2, 8) / 2
