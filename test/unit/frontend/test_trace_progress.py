"""Progress of a trace: its phase and the number of ops."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shardc.frontend.importing import recorder
from shardc.frontend.step.capture import capture_step


def test_ops_are_counted_by_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(recorder, "TOLD_EVERY", 8)
    monkeypatch.setattr(recorder.progress, "step", lambda what, done: told.append((what, done)))
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(3, 3), nn.GELU())))
    optimizer = torch.optim.AdamW(model.parameters())
    capture_step(model, optimizer, (torch.ones(2, 3),), loss=lambda out, _: out.sum())
    assert {what for what, _ in told} == {"forward, ops", "backward, ops", "optimizer, ops"}
    assert [done for _, done in told] == [8 * (n + 1) for n in range(len(told))]
