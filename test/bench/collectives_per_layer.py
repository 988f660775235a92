"""How many collectives, and what bytes, each Llama layer costs a step: ours, and DTensor tensor parallelism +
FSDP2.

    python test/bench/collectives_per_layer.py

What the processes really issue is counted for a model of 2 layers and for one of 6; a quarter of the
difference is a layer's. Ours packs the parameters of several layers into one collective, so a layer's share
may be less than one.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from four_process_step import arguments, contenders, count
from launch import on_processes
from machine import heading, table
from traffic_meter import TrafficMeter

FEW, MANY = 2, 6


def work(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    few, many = (count(*contenders(_with_layers(options, layers))) for layers in (FEW, MANY))
    if dist.get_rank() == 0:
        print(
            heading(f"A layer's collectives on data 2 x tensor 2, batch {options.batch} x {options.sequence}")
        )
        columns = [
            "step",
            "axis",
            "kind",
            "calls a layer",
            "MB sent a rank and layer",
            "calls besides",
            "MB besides",
        ]
        print(table(columns, [row for name in many for row in _rows(name, few[name], many[name])]))


def _with_layers(options: argparse.Namespace, layers: int) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), "layers": layers})


def _rows(name: str, few: TrafficMeter, many: TrafficMeter) -> list[list[object]]:
    rows: list[list[object]] = []
    for kind, axis in sorted(many.calls, key=lambda key: key[::-1]):
        row: list[object] = [name, axis, kind]
        besides: list[float] = []
        for measure, unit in (("calls", 1.0), ("sent_bytes", 1e6)):
            small, large = (getattr(meter, measure)[kind, axis] / unit for meter in (few, many))
            a_layer = (large - small) / (MANY - FEW)
            row.append(a_layer)
            besides.append(small - FEW * a_layer)
        rows.append([*row, *besides])
    return rows


def main() -> None:
    options = arguments(__doc__).parse_args()
    on_processes(lambda: work(options))


if __name__ == "__main__":
    main()
