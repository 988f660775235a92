"""The calls of a program, played without data, against those that a step makes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import shardc
from shardc.compiler.profiling.program_calls import kernel_names, played_module, renamed
from shardc.runtime.errors import CallsNotSeen
from shardc.runtime.report.live_bytes import LiveBytes


def compiled_step(fuse: bool, micro_batches: int = 1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
    batch = (torch.randn(8, 32),)
    optimizer = torch.optim.AdamW(model.parameters())
    settings = {"mesh": {"data": 1}, "plan": "data", "fuse": fuse, "micro_batches": micro_batches}
    return shardc.compile_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean(), **settings
    ), batch


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("fuse", "micro_batches"), [(False, 1), (True, 1), (True, 2)])
def test_played_calls_are_those_of_a_step(fuse, micro_batches):
    step, batch = compiled_step(fuse, micro_batches)
    step(batch)
    running, program = step.running, step.compiled.program
    _, seen = running.calls_leaves(running.leaves(batch))
    (played,) = played_module(program)
    names = kernel_names(program)
    assert [renamed(call.text, names) for call in seen.found] == [call.text for call in played.calls]
    assert all(call.seconds >= 0 for call in seen.found)
    assert any(call.text.startswith("kernel ") for call in played.calls) == fuse


def test_the_calls_of_the_first_step_are_not_seen():
    step, batch = compiled_step(False)
    with pytest.raises(CallsNotSeen, match="from the second step on"):
        step.running.calls_leaves(step.running.leaves(batch))


@pytest.mark.slow
def test_a_step_gives_the_same_loss_when_it_is_watched():
    (plain, batch), (watched, _) = compiled_step(True), compiled_step(True)
    losses = [float(plain(batch)) for _ in range(4)]
    values, live = watched.running.leaves(batch), LiveBytes()
    found = [float(watched(batch))]
    live.start()
    found.append(float(watched(batch)))
    found.append(float(watched.running.live_leaves(values, live)))
    found.append(float(watched.running.calls_leaves(values)[0]))
    assert found == losses
    assert live.peak_bytes > 0
