"""What a search counts is about what the compiled plan holds, and a program frees early what it counts so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shardc.backends.torch import emit
from shardc.backends.torch.emit import emit_program
from shardc.compiler.memory import step_peaks
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.passes.manager.attributes import phase_of
from shardc.passes.search.repeats import repeats
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

CLUSTER = find_cluster("h100-8")
WIDTH, LAYERS = 2048, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def pricer(rows: int) -> Pricer:
    with torch.device("meta"):
        model = nn.Sequential(*(Block() for _ in range(LAYERS))).to(torch.bfloat16)
        batch = torch.empty(rows, WIDTH, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    question = Question(
        "blocks", model, optimizer, (batch,), lambda out, _: out.float().square().mean(), rows
    )
    return Pricer(question, cluster=CLUSTER)


@pytest.mark.parametrize("rows", [131072])
@pytest.mark.parametrize("micro_batches", [1, 8])
def test_counted_memory_is_that_of_the_compiled_plan(rows: int, micro_batches: int) -> None:
    """Sums over micro-batches are in f32, and gathered activations are kept."""
    priced = pricer(rows).price(Candidate({"nvlink": 8}, "auto", micro_batches))
    assert priced.searched is not None
    assert priced.searched.held_bytes == pytest.approx(priced.fullest.peak_bytes, rel=0.25)


def test_a_stage_frees_what_it_reads_last(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = Candidate({"pipe": 2, "data": 4}, "pipeline*data", 4)
    module = pricer(16384).compiled(candidate).program
    text, early = emit_program(module), step_peaks(module)
    assert ".clear()" in text
    monkeypatch.setattr(emit, "handed", lambda functions, sums: dict.fromkeys(sums, frozenset()))
    assert "handed" not in emit_program(module)
    for first, last in zip(early, step_peaks(module), strict=True):
        assert not isinstance(first, PeakUnknown) and not isinstance(last, PeakUnknown)
        sums = LAYERS // 2 * 8 * WIDTH * WIDTH * 4
        assert last.size_bytes - first.size_bytes > 0.5 * sums


def test_what_a_stage_recomputes_is_split_as_in_forward() -> None:
    """Its program has no calls of their own for it."""
    made = pricer(1024)
    step = made.graph(Candidate({"pipe": 2, "nvlink": 4}, "pipeline*auto", 4, "selective"))
    again = [n for n, node in enumerate(step.program.nodes) if phase_of(node.op) == "recompute"]
    found = repeats(step.program)
    assert again and set(found) == set(again)
    assert all(step.call_node[number] == step.call_node[first] for number, first in found.items())
    alone = made.graph(Candidate({"nvlink": 8}, "auto", 4, "selective"))
    found = repeats(alone.program)
    assert any(alone.call_node[number] != alone.call_node[first] for number, first in found.items())
