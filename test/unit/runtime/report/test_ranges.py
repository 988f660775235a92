"""Ranges of ``torch.profiler``: each op of a step is under its phase and the user's line; off by default."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import shardc
from shardc.runtime.report.ranges import with_ranges
from shardc.runtime.source import place_above


class Net(nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        return self.second(hidden)


def _line(text: str) -> str:
    lines, start = inspect.getsourcelines(Net)
    return f"{Path(__file__).name}:{start + next(i for i, line in enumerate(lines) if text in line)}"


def _profiled() -> tuple[dict[str, list[str]], list[float]]:
    """Range -> the ATen calls in it, of the second step; and the losses of three steps."""
    torch.manual_seed(0)
    model, batch = Net(), (torch.randn(4, 4),)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = shardc.compile_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean(), mesh={"data": 1}, fuse=False
    )
    losses = [float(step(batch))]
    with profile(activities=[ProfilerActivity.CPU]) as found:
        losses.append(float(step(batch)))
    losses.append(float(step(batch)))
    ranges: dict[str, list[str]] = {}
    for event in found.events():
        parent = event.cpu_parent
        while parent is not None and not parent.name.startswith(("forward", "backward", "optimizer")):
            parent = parent.cpu_parent
        if parent is not None and event.name.startswith("aten::"):
            ranges.setdefault(parent.name, []).append(event.name)
    return ranges, losses


def test_ops_are_under_the_users_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, losses = _profiled()
    assert plain == {}
    monkeypatch.setenv("SHARDC_PROFILE_RANGES", "1")
    ranges, again = _profiled()
    assert again == losses
    first, second = _line("self.first(x)"), _line("return self.second")
    assert "aten::addmm" in ranges[f"forward {first}"]
    assert "aten::relu" in ranges[f"forward {first}"]
    assert "aten::addmm" in ranges[f"forward {second}"]
    assert "aten::mm" in ranges[f"backward {second}"]
    assert "aten::mm" in ranges[f"backward {first}"]
    assert any(name.startswith("optimizer ") for name in ranges)


PROGRAM = """\
def step(
    rank,
    x,
):
    # -- forward
    # model.py:12
    y = relu(x)  # float32[4]
    for i in range(2):
        # model.py:14
        y = relu(y)
    # -- backward
    return (y,)
"""


def test_lines_keep_their_numbers() -> None:
    """So that errors name the same line of the user's."""
    text = with_ranges(PROGRAM)
    assert len(text.splitlines()) == len(PROGRAM.splitlines())
    assert text.splitlines()[4:6] == [
        "    shardc_range('forward')",
        "    shardc_range('forward model.py:12')",
    ]
    assert text.splitlines()[8] == "        shardc_range('forward model.py:14')"
    assert text.splitlines()[10] == "    shardc_range('backward model.py:14')"
    assert text.splitlines()[11] == "    shardc_range(); return (y,)"
    assert place_above(PROGRAM.splitlines(), 7) == "model.py:12"
    compile(text, "program", "exec")
