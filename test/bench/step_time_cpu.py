"""Predicted and measured time of a step on this machine's CPU: 15 pairs of a model and a mesh.

    python test/bench/step_time_cpu.py [--rounds 15] [NAME ...]

Each program is compiled into a folder and profiled as ``shardc profile`` does, into a database of this run's
own; ``known`` is the part of its different calls that programs before it had left there. All predictions are
made before anything is measured, from the one database. Then programs are measured in turn: those of one
number of processes a step each, over and over, in blocks of ``BLOCK`` rounds; medians. One thread a process,
so that four processes share two cores here, in the profile as in the measurement. Goal: 15%, and every pair
whose medians differ by more than 15% in the right order.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from machine import heading, table
from peak_cpu import Regression, Residual, Subject, language, llama, mlp, regression
from torch import nn

BLOCK = 5
WARM = 2
APART = 0.15
Program = tuple[Callable[[], Subject], dict[str, int], str]


def small_llama() -> Subject:
    return llama(8, 128, num_hidden_layers=4)


def small_gpt2() -> Subject:
    return language("GPT2", 8, 128, n_embd=256, n_layer=4, n_head=8, vocab_size=4096, n_positions=256)


def small_mlp() -> Subject:
    return regression(Regression(mlp(nn.GELU(), 1024, 4)), torch.randn(512, 1024), torch.randn(512, 1024))


def small_resnet() -> Subject:
    body = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), *(Residual(32) for _ in range(3)), nn.Conv2d(32, 3, 1)
    )
    return regression(Regression(body), torch.randn(16, 3, 32, 32), torch.randn(16, 3, 32, 32))


PROGRAMS: dict[str, Program] = {
    "llama, one process": (small_llama, {"data": 1}, "data"),
    "mlp, one process": (small_mlp, {"data": 1}, "data"),
    "resnet, one process": (small_resnet, {"data": 1}, "data"),
    "llama, zero3 on 2": (small_llama, {"data": 2}, "zero3"),
    "llama, tensor on 2": (small_llama, {"tensor": 2}, "tensor"),
    "gpt2, data on 2": (small_gpt2, {"data": 2}, "data"),
    "mlp, tensor on 2": (small_mlp, {"tensor": 2}, "tensor"),
    "resnet, data on 2": (small_resnet, {"data": 2}, "data"),
    "llama, zero1 on 4": (small_llama, {"data": 4}, "zero1"),
    "llama, zero3*tensor on 2x2": (small_llama, {"data": 2, "tensor": 2}, "zero3*tensor"),
    "gpt2, tensor on 4": (small_gpt2, {"tensor": 4}, "tensor"),
    "gpt2, data*sequence on 2x2": (small_gpt2, {"data": 2, "tensor": 2}, "data*sequence"),
    "mlp, zero2 on 4": (small_mlp, {"data": 4}, "zero2"),
    "mlp, data*tensor on 2x2": (small_mlp, {"data": 2, "tensor": 2}, "data*tensor"),
    "resnet, zero1 on 4": (small_resnet, {"data": 4}, "zero1"),
}


def compile_to(folder: Path, name: str) -> None:
    import shardc

    torch.manual_seed(0)
    make, mesh, plan = PROGRAMS[name]
    model, batch, loss = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shardc.compile_step(model, optimizer, batch, mesh=mesh, plan=plan, loss=loss).save(folder)


def predict(folders: dict[str, Path], steps: int) -> dict[str, tuple[float, float]]:
    """Seconds that each program is predicted to take, and the part of its calls that were known before."""
    from shardc.artefact.folder import read_manifest
    from shardc.commands.folder_calls import FolderCalls
    from shardc.commands.profile import profile
    from shardc.compiler.profiling.known import known_profile, predicted

    known: dict[str, float] = {}
    programs: dict[str, FolderCalls] = {}
    for name, folder in folders.items():
        programs[name] = found = FolderCalls.read(folder, read_manifest(folder))
        calls = [call for rank in found.ranks for call in rank.calls]
        missing = known_profile(found.mesh.world_size).missing(calls)
        known[name] = 1 - len(missing) / len({call.text for call in calls})
        profile(folder, steps)
        print(f"profiled {name}", file=sys.stderr, flush=True)
    times = {name: predicted(found.ranks, found.mesh.world_size) for name, found in programs.items()}
    return {name: (time.seconds, known[name]) for name, time in times.items() if time is not None}


def measure(folders: dict[str, Path], rounds: int) -> dict[str, list[float]]:
    """Seconds of the steps of each program, in blocks over the numbers of processes."""
    groups: dict[int, list[str]] = {}
    for name in folders:
        processes = torch.Size(PROGRAMS[name][1].values()).numel()
        groups.setdefault(processes, []).append(name)
    taken: dict[str, list[float]] = {name: [] for name in folders}
    for first in range(0, rounds, BLOCK):
        count = min(BLOCK, rounds - first)
        for processes, names in groups.items():
            for name, seconds in zip(
                names, _block(processes, [folders[n] for n in names], count), strict=True
            ):
                taken[name] += seconds
    return taken


def _block(processes: int, folders: list[Path], rounds: int) -> list[list[float]]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with tempfile.TemporaryDirectory() as made:
        written = Path(made) / "taken.json"
        arguments = ["--work", str(written), "--rounds", str(rounds), *map(str, folders)]
        command = [sys.executable, *launch, __file__, *arguments]
        subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
        return json.loads(written.read_text())


def work(written: Path, folders: list[str], rounds: int) -> None:
    """One of the processes: steps of all folders in turn; the first writes what they took."""
    from shardc.runtime.run import batches_of
    from shardc.runtime.step import TrainStep

    steps = [TrainStep.load(Path(folder)) for folder in folders]
    batches = [next(batches_of(Path(folder) / "batches.safetensors")) for folder in folders]
    taken: list[list[float]] = [[] for _ in folders]
    for turn in range(WARM + rounds):
        for number, (step, batch) in enumerate(zip(steps, batches, strict=True)):
            if dist.is_initialized():
                dist.barrier()
            start_s = time.perf_counter()
            step.step_leaves(batch)
            if turn >= WARM:
                taken[number].append(time.perf_counter() - start_s)
    if steps[0].rank == 0:
        written.write_text(json.dumps(taken))
    if dist.is_initialized():
        dist.barrier()
    os._exit(0)  # Gloo's threads abort at random in a normal exit


def report(predicted: dict[str, tuple[float, float]], taken: dict[str, list[float]]) -> str:
    measured = {name: median(seconds) for name, seconds in taken.items()}
    rows: list[list[object]] = []
    for name, seconds in measured.items():
        said, known = predicted[name]
        rows.append([name, f"{known:.0%}", 1e3 * said, 1e3 * seconds, f"{100 * (said / seconds - 1):+.1f}%"])
    errors = [abs(predicted[name][0] / seconds - 1) for name, seconds in measured.items()]
    apart = [
        (a, b)
        for a, b in combinations(measured, 2)
        if max(measured[a], measured[b]) > (1 + APART) * min(measured[a], measured[b])
    ]
    wrong = [(a, b) for a, b in apart if (measured[a] < measured[b]) != (predicted[a][0] < predicted[b][0])]
    rounds = len(next(iter(taken.values())))
    lines = [
        heading(f"Predicted and measured time of a step ({rounds} rounds)"),
        table(["program", "known", "predicted ms", "measured ms", "off"], rows),
        f"mean error {100 * sum(errors) / len(errors):.1f}% max {100 * max(errors):.1f}%; "
        f"{len(apart) - len(wrong)} of {len(apart)} pairs over {APART:.0%} apart in the right order",
        *(f"wrong order: {a}; {b}" for a, b in wrong),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=15, help="steps that a profile is of")
    parser.add_argument("--folder", type=Path, help="where the programs are compiled to, and found again")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work, options.names, options.rounds)
    with tempfile.TemporaryDirectory() as made:
        home = options.folder or Path(made)
        os.environ["SHARDC_TUNING_DB"] = str(Path(made) / "profiles.db")
        folders = {name: home / f"p{n}" for n, name in enumerate(PROGRAMS)}
        wanted = options.names or list(PROGRAMS)
        folders = {name: folder for name, folder in folders.items() if name in wanted}
        for name, folder in folders.items():
            if not folder.exists():
                compile_to(folder, name)
        predicted = predict(folders, options.steps)
        print(report(predicted, measure(folders, options.rounds)))


if __name__ == "__main__":
    main()
