"""Shardings chosen with the tiles of their local products, against shardings first and tiles second.

    python test/bench/tiles_and_shardings.py [--steps 21] [--most 8] [--least 1.02]

A pair is a model and a mesh of four CPU processes. Two searches with ``plan="auto"`` use one cost model but
for products: *joint* takes what each local product was measured to take on this machine; *first* takes its
FLOP at the peak, whatever its shape, as planners do that choose shardings before tiles. Both plans' programs
are priced with the measured products; where *first* takes at least ``--least`` of *joint*, the two run on
four Gloo processes of one thread, in turn. *Measured gain*: median over turns of the ratio of times, less 1.
"""

from __future__ import annotations

import argparse
import copy
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from auto_duel import Pair, adamw, ids, llama, mlp, numbers, square
from four_process_step import losses, time_in_turn
from launch import PROCESSES
from machine import heading, table

import shardc
from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.cluster import Cluster
from shardc.planning.auto.measured.local_products import with_local_products
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of

MESHES = ({"memory": PROCESSES}, {"outer": 2, "memory": 2})
WIDTHS, ROWS = (192, 250, 384, 500, 640, 1000, 1024, 1536), (4, 12, 32, 100, 256, 512)


def pairs() -> dict[str, Pair]:
    """Models whose sizes are multiples of a tile, or not, with few and many rows."""
    found = {f"MLP 4 x {w}, {r}": Pair(mlp(w, 4), numbers(r, 64), square) for w in WIDTHS for r in ROWS}
    for width, batch, length in ((128, 4, 16), (256, 4, 32), (320, 8, 24)):
        found[f"Llama 2 x {width}, {batch} x {length}"] = Pair(
            llama(2, width, 1000), ids(batch, length, 1000)
        )
    return found


PAIRS = pairs()


@dataclass(frozen=True)
class Row:
    """What the two searches found for a pair: seconds by the joint model, and whether the programs differ."""

    name: str
    mesh: int
    first_s: float
    joint_s: float
    differ: bool
    clusters: tuple[Cluster, Cluster]


def searched(name: str, pair: Pair) -> Iterator[Row]:
    model, batch = pair.model(), pair.batch()
    question = Question(name, model, adamw(model.parameters()), batch, pair.loss, tokens_of(batch))
    local = cluster_of(f"local-{PROCESSES}")
    program = Pricer(question, cluster=local).program(Candidate(MESHES[0], "auto"))
    joint = with_local_products(local, program, question.samples, [1])
    first = _flat(joint)
    for number, mesh in enumerate(MESHES):
        candidate = Candidate(mesh, "auto")
        plans = [Pricer(question, cluster=of).price(candidate) for of in (first, joint)]
        first_s, joint_s = (plan.on(joint).time.seconds for plan in plans)
        yield Row(name, number, first_s, joint_s, first_s != joint_s, (first, joint))


def _flat(cluster: Cluster) -> Cluster:
    """The cluster with products that take their FLOP at the peak."""
    (device,) = cluster.devices
    rows = []
    for *sizes, element_bytes, _ in device.products:
        flops = 2.0 * sizes[0] * sizes[1] * sizes[2] * sizes[3]
        rate = device.peak_flop_s("f32" if element_bytes == 4 else "bf16")
        rows.append((*sizes, element_bytes, flops / rate))
    return replace(cluster, devices=(replace(device, products=tuple(rows)),))


def measured(row: Row, options: argparse.Namespace) -> None:
    """What each of the processes does for one pair."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pair = PAIRS[row.name]
    model, batch = pair.model(), pair.batch()
    steps = {}
    for name, cluster in zip(("first", "joint"), row.clusters, strict=True):
        mine = copy.deepcopy(model)
        step = shardc.compile_step(
            mine,
            adamw(mine.parameters()),
            batch,
            loss=pair.loss,
            mesh=MESHES[row.mesh],
            plan="auto",
            cluster=cluster,
        )
        step.running  # noqa: B018 (joins the ranks, before anything is timed)
        steps[name] = lambda step=step: step(batch)
    first = losses(steps)
    assert abs(first["first"] / first["joint"] - 1) < 1e-4, first
    taken = {name: wall for name, (wall, _) in time_in_turn(steps, options).items()}
    if dist.get_rank() == 0:
        gain = median(a / b for a, b in zip(taken["first"], taken["joint"], strict=True)) - 1
        cells = [_text(row), f"{row.first_s / row.joint_s - 1:.1%}"]
        times = [1e3 * median(taken["first"]), 1e3 * median(taken["joint"])]
        print(table(COLUMNS, [[*cells, *times, f"{gain:.1%}"]]), flush=True)


def _text(row: Row) -> str:
    return f"{row.name}, on {' x '.join(map(str, MESHES[row.mesh].values()))}"


COLUMNS = ("pair", "estimated gain", "first, ms", "joint, ms", "measured gain")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=21)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--most", type=int, default=8, help="pairs that are measured")
    parser.add_argument("--least", type=float, default=1.02)
    parser.add_argument("--row", type=Path, help="a pair to measure, in a process that torchrun started")
    options = parser.parse_args()
    if options.row is not None:
        measured(pickle.loads(options.row.read_bytes()), options)
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)  # Gloo's threads abort at random in a normal exit
    print(heading("Shardings with tiles, against shardings first, four processes"))
    torch.set_num_threads(1)
    found = [row for name, pair in PAIRS.items() for row in searched(name, pair)]
    gains = [[_text(row), row.differ, f"{row.first_s / row.joint_s - 1:.1%}"] for row in found]
    print(table(("pair", "programs differ", "estimated gain"), gains), flush=True)
    best = sorted(found, key=lambda row: row.first_s / row.joint_s, reverse=True)[: options.most]
    for row in (row for row in best if row.first_s / row.joint_s >= options.least):
        with tempfile.NamedTemporaryFile() as file:
            file.write(pickle.dumps(row))
            file.flush()
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            launch += ["--nproc-per-node", str(PROCESSES), __file__, "--row", file.name]
            launch += [f"--{key}={getattr(options, key)}" for key in ("steps", "warmup")]
            subprocess.run(launch, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)


if __name__ == "__main__":
    main()
