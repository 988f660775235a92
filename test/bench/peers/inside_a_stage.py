"""shardc's search inside a stage beside AutoParallel's, both counted by shardc's cost of collectives.

    python test/bench/peers/inside_a_stage.py config.json --autoparallel FOLDER --python PYTHON --work FOLDER

``--autoparallel``: a checkout of https://github.com/meta-pytorch/autoparallel. ``--python``: an interpreter
with a recent torch, transformers and pulp, which runs it. For each mesh both plan forward and backward of the
language model of ``config.json``, in f32, on one node of 8 H100s. Columns: the collectives in the program of
a device, their bytes and seconds one after another, and the FLOP of its products; shardc's also has AdamW.
AutoParallel runs with the batch cut along the first axis, as in its examples, along all axes, and with its
default limit: parameters sharded over all devices.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from math import prod
from pathlib import Path
from time import perf_counter

import torch

from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.mapping import Placement
from shardc.cost.collective import sent_bytes
from shardc.cost.collectives.seconds import seconds
from shardc.options.parallelism import parse_mesh
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Sizes, read_config

sys.path.append(str(Path(__file__).parents[1]))
from machine import heading, table

CLUSTER, GPU = "h100-8", "NVIDIA H100"
VARIANTS = {
    "AutoParallel": {"sharded": False, "along_all": False},
    "AutoParallel, batch along all axes": {"sharded": False, "along_all": True},
    "AutoParallel, sharded parameters": {"sharded": True, "along_all": False},
}
Collective = tuple[str, int, float, int]
"""Kind, group size, bytes of an operand, times."""


def main() -> None:
    given = _arguments()
    for mesh in given.meshes:
        rows = [_ours(given, mesh)]
        for name, how in VARIANTS.items():
            if len(mesh) > 1 or not how["along_all"]:
                rows.append(_theirs(given, mesh, name, how))
        axes = " x ".join(f"{name} {size}" for name, size in mesh.items())
        columns = ("planner", "collectives", "MB sent", "ms of collectives", "GFLOP", "search s", "in all s")
        print(f"#### {given.config.parent.name}, batch {given.batch} x {given.length}, {axes}\n")
        print(table(columns, rows), flush=True)
    print(heading("Inside a stage"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--autoparallel", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--meshes", type=parse_mesh, nargs="+", default=[{"a": 8}, {"a": 2, "b": 4}])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    return parser.parse_args()


def _ours(given: argparse.Namespace, mesh: dict[str, int]) -> list[object]:
    start_s = perf_counter()
    question = read_config(given.config, Sizes(given.batch, given.length), torch.float32)
    cluster = cluster_of(CLUSTER)
    pricer = Pricer(question, None, cluster)
    candidate = Candidate(mesh, "auto")
    found_s = perf_counter()
    pricer.found(candidate)
    found_s = perf_counter() - found_s
    price = pricer.price(candidate).on(cluster)
    moved = [(t.kind, t.ways, float(t.type.size_bytes), t.times) for t in price.priced.transfers]
    spent = found_s, perf_counter() - start_s
    return ["shardc", *_judged(mesh, moved), price.time.flops / 1e9, *spent]


def _theirs(given: argparse.Namespace, mesh: dict[str, int], name: str, how: dict[str, bool]) -> list[object]:
    asked, answer = given.work / "request.json", given.work / "answer.json"
    answer.unlink(missing_ok=True)
    request = {"repository": str(given.autoparallel.resolve()), "config": str(given.config.resolve())}
    request |= {"gpu": GPU, "mesh": mesh, "batch": given.batch, "length": given.length, **how}
    asked.write_text(json.dumps(request))
    script = Path(__file__).with_name("autoparallel_side.py").absolute()
    start_s = perf_counter()
    done = subprocess.run([given.python, script, asked, answer], capture_output=True, text=True)
    if done.returncode:
        return [f"{name}: {done.stderr.strip().splitlines()[-1]}", *[""] * 6]
    found = json.loads(answer.read_text())
    moved = [tuple(row) for row in found["collectives"]]
    return [name, *_judged(mesh, moved), found["flops"] / 1e9, found["solve_s"], perf_counter() - start_s]


def _judged(mesh: dict[str, int], moved: list[Collective]) -> list[object]:
    """Return how many collectives there are, the MB that a device sends, and the milliseconds they take."""
    placement = Placement.of(cluster_of(CLUSTER), mesh)
    axes = {size: [name] for name, size in mesh.items()} | {prod(mesh.values()): list(mesh)}
    sent = sum(times * sent_bytes(kind, ways, size) for kind, ways, size, times in moved)
    spent_s = sum(
        times * seconds(kind, placement.links(axes[ways]), size) for kind, ways, size, times in moved
    )
    return [sum(times for *_, times in moved), sent / 1e6, spent_s * 1e3]


if __name__ == "__main__":
    main()
