"""Memory of a pipeline's step: equal calls of a stage's function are counted as if each ran."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import groupby

import pytest
import torch
from torch import nn

from shardc.backends.torch.memory import repeated
from shardc.backends.torch.memory.dry_run import META, Peak, dry_run
from shardc.compiler.memory import step_peaks
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of

HEAD = """
import torch
add, view = torch.ops.aten.add.Tensor, torch.ops.aten.view.default
"""

TAKEN_OVER = """
def stage_F(rank, micro, x, w):
    kept = add(x, w)
    out = add(kept, 1)
    return out, kept

def stage_B(rank, micro_1, w, handed):
    kept, total = handed
    handed.clear()
    grad = add(kept, w)
    del kept
    new = add(total, grad)
    return (new,)

def step(rank, x, w):
    total = empty([64], torch.uint8)
    for micro in range(6):
        out, kept = stage_F(rank, micro, x, w)
        handed = [kept, total]
        del kept, total, out
        total, = stage_B(rank, micro, w, handed)
"""

HELD_BY_OTHERS = """
def stage_B(rank, micro, w, handed):
    kept, = handed
    handed.clear()
    grad = add(kept, w)
    del kept
    other = empty([640], torch.uint8)
    return (grad,)

def step(rank, x, w):
    for micro in range(4):
        kept = empty([64], torch.uint8)
        also = view(kept, [2, 32]) if micro > 1 else None
        handed = [kept]
        del kept
        grad, = stage_B(rank, micro, w, handed)
        del also
"""

ALIKE = """
def stage_F(rank, micro, x, y):
    return x, view(x, [2, 32]), add(x, y)

def step(rank, x, w):
    a = empty([64], torch.uint8)
    for micro in range(3):
        first = stage_F(rank, micro, a, a)
        second = stage_F(rank, micro, a, x)
        third = stage_F(rank, micro, a, x)
        del first, third
"""


def peak(text: str, *, is_each: bool) -> Peak:
    return dry_run(
        HEAD + text,
        "step",
        lambda: [1, *(torch.empty(64, dtype=torch.uint8, device=META) for _ in range(2))],
        around=(lambda _: nullcontext()) if is_each else None,
    )


def ledger(peak: Peak) -> object:
    blocks = [(b.size_bytes, b.made, b.read, b.outlived) for b in peak.record.blocks]
    sizes = [size for _, size in peak.record.log.requests]
    events = [sorted(some) for _, some in groupby(sizes, key=lambda size: size < 0)]  # frees in any order
    return peak.size_bytes, peak.line, peak.held, peak.alive, blocks, events, peak.curve


@pytest.mark.parametrize("text", [TAKEN_OVER, ALIKE])
def test_equal_calls_count_as_if_each_ran(text: str) -> None:
    assert ledger(peak(text, is_each=False)) == ledger(peak(text, is_each=True))


def test_memory_that_others_hold_lives_on() -> None:
    assert peak(HELD_BY_OTHERS, is_each=False).size_bytes == peak(HELD_BY_OTHERS, is_each=True).size_bytes


@pytest.mark.parametrize("plan", ["pipeline*zero3", "pipeline*tensor"])
def test_a_pipeline_counts_as_if_each_action_ran(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with META:
        model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)))
    batch = (torch.empty(32, 64, device=META), torch.empty(32, 64, device=META))
    optimizer = torch.optim.AdamW(model.parameters())
    question = Question("net", model, optimizer, batch, nn.MSELoss(), tokens_of(batch))
    axis = "tensor" if plan.endswith("tensor") else "data"
    compiled = Pricer(question).programs.compiled(Candidate({"pipe": 2, axis: 2}, plan, 8))
    repeats = step_peaks(compiled.program)
    monkeypatch.setattr(repeated.Repeated, "replace", lambda *_: None)
    for once, each in zip(repeats, step_peaks(compiled.program), strict=True):
        assert isinstance(once, Peak) and isinstance(each, Peak)
        assert ledger(once) == ledger(each)
