"""Captures of a question's versions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.options.step import StepOptions
from shardc.planning import versions
from shardc.planning.question import Question, tokens_of
from shardc.planning.versions import Versions

META = torch.device("meta")


def question() -> Question:
    with META:
        blocks = [nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(3)]
        model = nn.Sequential(*blocks)
        batch = torch.empty(4, 8), torch.empty(4, 8)
    return Question("net", model, torch.optim.Adam(model.parameters()), batch, nn.MSELoss(), tokens_of(batch))


def test_one_trace_is_for_all_policies_of_recomputation(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, traces = question(), list[object]()

    def counted(*given: object, **options: object) -> object:
        traces.append(options["noted"])
        return capture_step(*given, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(versions, "capture_step", counted)
    made = Versions(asked, None)
    policies = ("none", "selective", "full", "none")
    options = [StepOptions.of({"mesh": {"data": 2}, "recompute": policy}).parallelism for policy in policies]
    none, selective, full, again = (made.captured(made.whole, each) for each in options)
    assert len(traces) == 1
    assert [list(capture.noted) for capture in (none, selective, again)] == [[], ["0", "1", "2"], []]
    assert "dist.module" in str(selective.module) and str(full.module) == str(selective.module)
    alone = capture_step(
        asked.model, asked.optimizer, asked.batch, loss=asked.loss, autocast=None, context=new_context()
    )
    assert str(none.module) == str(again.module) == str(alone.module)
