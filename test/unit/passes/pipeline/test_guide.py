"""The claims of ``docs/guide/pipelines.md`` on schedules are correct."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardc.cli import main
from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.passes.pipeline.checks.check_transfers import peak_buffers
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.registry import SCHEDULES

GUIDE = (Path(__file__).resolve().parents[4] / "docs" / "guide" / "pipelines.md").read_text()
ROWS = {
    row[0].strip("`"): row[1:]
    for row in re.findall(r"^\| (`[\w-]+`) \|" + r" (.*?) \|" * 6, GUIDE, re.MULTILINE)
}
RANKS, MICRO_BATCHES = 8, 32


def test_every_schedule_is_in_the_table() -> None:
    assert list(ROWS) == list(SCHEDULES)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_table(name: str) -> None:
    named = SCHEDULES[name]
    schedule = by_name(name, RANKS * named.fewest, MICRO_BATCHES, ranks=RANKS)
    parts = len(schedule.routes[0]) // RANKS * schedule.slices
    costs = [
        StageCost(*[1 / parts] * 3, activation_bytes=1 / parts, weight_bytes=1 / parts)
    ] * schedule.stages
    timeline = simulate(schedule, costs)
    peaks = timeline.peak_bytes(costs)
    found = [
        f"{len(schedule.routes[0]) // RANKS}{'+' if named.several else ''}",
        f"{timeline.longest_span_s - 3 * MICRO_BATCHES:g}",
        f"{timeline.step_s - 3 * MICRO_BATCHES:g}",
        f"{min(peaks):g} to {max(peaks):g}",
        str(max(peak_buffers(schedule, place_transfers(schedule)))),
    ]
    assert list(ROWS[name][:5]) == found


def test_the_example_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "1f1b", "--stages", "4", "--micro-batches", "8"]) == 0
    first_rank = capsys.readouterr().out.split("\nrank 1 |")[0]
    assert f"```text\n{first_rank}\n```\n" in GUIDE
