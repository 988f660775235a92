"""The bubble of pipelines on four processes against the simulator's, for stages that sleep known times.

    python test/bench/pipeline_bubble.py

Every layer sleeps ``--ms`` in forward, as long for the gradient of its input and for that of its weight, so
the times that the simulator is given are known and the load of the machine hardly matters. Each schedule's
step is compiled, run twice, and then traced ``--steps`` times (``TrainStep.trace``); rates are medians.
"waits": the share of the longest rank's time in which the busiest one waits, by the times that actions took
("measured") and by those that they sleep ("by the clock": known times / the measured length of the step).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from launch import PROCESSES, on_processes
from machine import heading, table
from sleeping_layer import Sleeper, register_rules

import shardc
from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.cost.timeline import Timeline
from shardc.passes.pipeline.schedules import by_name
from shardc.report.timeline_trace import read_run

LAYERS, WIDTH = 8, 64


@dataclass(frozen=True)
class Measured:
    """Of one schedule: what the simulator says, and the medians of what was measured."""

    name: str
    simulated: Timeline
    step_s: float
    bubble: float


def measure(name: str, stages: int, options: argparse.Namespace) -> Measured:
    model = Sleeper(LAYERS, WIDTH, options.ms / 1e3)
    batch = (torch.ones(options.micro_batches, WIDTH),)
    step = shardc.compile_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-3),
        batch,
        mesh={"pipe": PROCESSES},
        plan="pipeline",
        micro_batches=options.micro_batches,
        schedule=name,
        stages=cuts(stages),
        fuse=False,
        loss=lambda y, _: y.square().mean(),
    )
    for _ in range(2):
        step(batch)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.steps):
            path = Path(folder) / f"{number}.json"
            step.trace(batch, path)
            if dist.get_rank() == 0:
                runs.append(read_run(path))
    seconds = LAYERS // stages * options.ms / 1e3
    schedule = by_name.schedule(name, stages, options.micro_batches, ranks=PROCESSES)
    simulated = simulate(schedule, [StageCost(seconds, seconds, seconds)] * stages)
    found = runs or [simulated]
    return Measured(
        name, simulated, median(r.longest_span_s for r in found), median(r.bubble_rate for r in found)
    )


def cuts(stages: int) -> list[str]:
    """The modules at which the stages but the first start."""
    return [f"layers.{stage * (LAYERS // stages)}" for stage in range(1, stages)]


def report(rows: list[Measured], options: argparse.Namespace) -> str:
    size = f"{PROCESSES} processes, {options.micro_batches} micro-batches, {options.ms:g} ms a layer and part"
    cells = []
    for row in rows:
        known = 1 - row.simulated.busy_s / row.step_s
        cells.append(
            [
                row.name,
                1e3 * row.simulated.longest_span_s,
                1e3 * row.step_s,
                f"{row.step_s / row.simulated.longest_span_s:.3f}x",
                f"{row.simulated.bubble_rate:.4f}",
                f"{row.bubble:.4f}",
                f"{known:.4f}",
            ]
        )
    return "\n".join(
        [
            heading(f"Bubbles of pipelines whose stages sleep ({size}, {options.steps} steps)"),
            table(
                [
                    "schedule",
                    "simulated ms",
                    "measured ms",
                    "ratio",
                    "waits simulated",
                    "measured",
                    "by the clock",
                ],
                cells,
            ),
        ]
    )


def work(options: argparse.Namespace) -> None:
    """What each of the four processes does."""
    torch.set_num_threads(1)
    register_rules()
    rows = [
        measure(name, PROCESSES * (2 if name in ("interleaved", "zb-v", "hanayo") else 1), options)
        for name in options.schedules
    ]
    if dist.get_rank() == 0:
        print(report(rows, options))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ms", type=float, default=20.0, help="what a layer sleeps in each part, in milliseconds"
    )
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--schedules", nargs="*", default=["fill-drain", "1f1b", "interleaved", "zb-h1", "zb-v"]
    )
    options = parser.parse_args()
    on_processes(lambda: work(options))


if __name__ == "__main__":
    main()
