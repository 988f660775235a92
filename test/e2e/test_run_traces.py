"""Recorded steps of real processes with their predictions, read back from one Perfetto trace."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from perfetto_reader import Read, read_perfetto
from torch import Tensor, nn

import shardc
from shardc.commands.run import run_artefact
from shardc.commands.runs.run_trace import predicted_run
from shardc.report.timeline_trace import read_run
from shardc.report.traces.tracks import Process

pytestmark = pytest.mark.processes
CLUSTER = "h100"
"""Any will do, and it takes no probe."""


def mean_square(output: Tensor, batch: tuple[Tensor]) -> Tensor:
    return (output - batch[0]).square().mean()


def compiled(folder: Path, mesh: dict[str, int], plan: str, micro_batches: int | None = None) -> Path:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2)]
    model, batch = nn.Sequential(*layers), (torch.randn(16, 32),)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    options = {} if micro_batches is None else {"micro_batches": micro_batches}
    step = shardc.compile_step(
        model, optimizer, batch, loss=mean_square, mesh=mesh, plan=plan, fuse=False, **options
    )
    step.save(folder)
    return folder


def collectives_of(process: Process) -> Counter[tuple[str, int]]:
    """How often each collective of so many bytes is predicted."""
    found = [s for t in process.tracks if t.name.startswith("collectives") for s in t.slices]
    return Counter((s.name, int(s.about["bytes"])) for s in found)


def measured_of(read: Read, rank: int) -> Counter[tuple[str, int]]:
    tracks = read.processes[f"rank {rank} (measured)"]
    found = [s for name, slices in tracks.items() if name.startswith("collectives") for s in slices]
    return Counter((name, about["bytes"]) for name, _, _, about in found if name not in ("send", "receive"))


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["zero3*tensor", "data*tensor"])
def test_collectives_are_recorded_as_they_are_predicted(plan: str, tmp_path: Path) -> None:
    folder = compiled(tmp_path / "out", {"data": 2, "tensor": 2}, plan)
    trace = tmp_path / "run.pftrace"
    assert run_artefact(folder, 4, 3, {"trace": trace}, cluster=CLUSTER) == 0
    read = read_perfetto(trace.read_bytes())
    names = list(read.processes)
    assert names[:2] == ["rank 0 (predicted)", "rank 0 (measured)"] and len(names) == 5
    (predicted,) = predicted_run(folder, CLUSTER, 4)
    for rank in range(4):
        assert measured_of(read, rank) == collectives_of(predicted)
        ops = read.processes[f"rank {rank} (measured)"]["ops"]
        assert {name.partition(" ")[0] for name, *_ in ops} >= {"forward", "backward", "optimizer"}
        assert any("test_run_traces.py" in name for name, *_ in ops)
        ends = [end for _, _, end, _ in ops]
        assert ends == sorted(ends)
        points = read.counters[f"rank {rank} (measured)"]["resident memory"]
        assert len(points) > len(ops) and all(held > 1 << 20 for _, held in points)
    waits = read.processes["rank 0 (measured)"]["waits"]
    assert sum(collectives_of(predicted).values()) == len(waits)


@pytest.mark.slow
def test_a_pipeline_shows_its_actions_and_is_read_as_a_timeline(tmp_path: Path) -> None:
    folder = compiled(tmp_path / "out", {"pipe": 2}, "pipeline", 4)
    trace = tmp_path / "run.json"
    assert run_artefact(folder, 2, 2, {"trace": trace}, cluster=CLUSTER) == 0
    (first, last) = read_run(trace).spans
    assert len(first) == len(last) == 8
    events = json.loads(trace.read_text())["traceEvents"]
    titles = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert titles == [f"rank {rank} ({kind})" for rank in range(2) for kind in ("predicted", "measured")]
    predicted = [e["name"] for e in events if e.get("cat") == "predicted action" and e["pid"] == 1]
    assert predicted == [str(span.action) for span in first]
    received = [e["args"]["bytes"] for e in events if e["ph"] == "X" and e["name"] == "receive"]
    assert sorted(received) == [4, *[4 * 32 * 4] * 8]  # the loss, and each micro-batch both ways
    expected = [e["args"]["bytes"] for e in events if e["ph"] == "X" and "tag" in e["args"]]
    assert expected == [4 * 32 * 4] * 16  # sent and received


def test_a_step_is_recorded_in_a_script(tmp_path: Path) -> None:
    model, batch = nn.Linear(8, 8), (torch.randn(4, 8),)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = shardc.compile_step(model, optimizer, batch, loss=mean_square, mesh={"data": 1})
    losses = [float(step(batch)), float(step.trace(batch, tmp_path / "run.json")), float(step(batch))]
    assert losses[0] > losses[1] > losses[2]
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert any(re.match(r"(forward|backward|optimizer)", event["name"]) for event in events)
