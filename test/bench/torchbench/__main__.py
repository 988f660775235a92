"""Whole models that are in no other list: shardc's backend against TorchInductor and eager PyTorch.

    python test/bench/torchbench --results rows.jsonl            # all models, training and inference
    python test/bench/torchbench --models DLRM --what training

A row is measured in processes of its own, one at a time. A cold start is what a fresh process with empty
caches takes from the call of ``torch.compile`` to the end of the first step, in CPU seconds with those of
processes that it started; its peak is the resident set's over that time and three more steps (Linux). Times
of steps are medians of ``--repeats`` rounds on one thread, in its own CPU time; the order of contenders is
drawn in each round. Losses, outputs and gradients are compared with f64 first.

With ``--results``, finished rows are kept in the file, and a later run with it continues.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from models import SUBJECTS, Batch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1]))
from cpu_kernels import measure
from machine import heading, table

BACKENDS = ("shardc", "inductor", "eager")
WHAT = ("training", "inference")


def _made(name: str) -> tuple[nn.Module, Batch]:
    torch.manual_seed(0)
    return SUBJECTS[name].model(), SUBJECTS[name].batch()


def _step(name: str, what: str, backend: str, model: nn.Module, batch: Batch) -> Callable[[], list[Tensor]]:
    """Return a function that runs a step, and returns its results: loss and gradients, or outputs."""
    subject, training = SUBJECTS[name], what == "training"
    model.train(training)
    called = model if backend == "eager" else torch.compile(model, backend=backend, dynamic=False)

    def train() -> list[Tensor]:
        model.zero_grad(set_to_none=True)
        loss = subject.loss(subject.call(called, batch), batch)
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    def infer() -> list[Tensor]:
        with torch.no_grad():
            return [subject.call(called, batch)]

    return train if training else infer


def _check(found: list[Tensor], eager: list[Tensor], exact: list[Tensor]) -> None:
    """Raise AssertionError where a result is off by 1e-4 of f64's norm, and by three times what eager is."""
    for got, other, truth in zip(found, eager, exact, strict=True):
        scale = float(truth.norm()) + 1e-12
        error, allowed = (float((t.double() - truth).norm()) / scale for t in (got, other))
        if not error <= max(1e-4, 3 * allowed):
            raise AssertionError(f"a result of shape {list(got.shape)} is off by {error:.1e}")


def steps(name: str, what: str, repeats: int) -> dict[str, float]:
    """Return the seconds of a step of each contender, after a comparison of results."""
    torch.set_num_threads(1)
    runners = {backend: _step(name, what, backend, *_made(name)) for backend in BACKENDS}
    model, batch = _made(name)
    wide = {key: t.double() if t.is_floating_point() else t for key, t in batch.items()}
    exact = _step(name, what, "eager", copy.deepcopy(model).double(), wide)()
    results = {backend: run() for backend, run in runners.items()}
    _check(results["shardc"], results["eager"], exact)
    return measure(runners, repeats, time.thread_time)


def cold(name: str, what: str, backend: str) -> dict[str, float]:
    """Return CPU seconds of this process's first step beyond those of a later one, and its peak bytes."""
    torch.set_num_threads(1)
    model, batch = _made(name)
    begin = _cpu_s()
    step = _step(name, what, backend, model, batch)
    marks = [begin]
    for _ in range(4):
        step()
        marks.append(_cpu_s())
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return {"cold_s": (marks[1] - marks[0]) - (marks[4] - marks[3]), "peak_bytes": peak}


def _cpu_s() -> float:
    """Return CPU seconds of this process, of those that it waited for, and of those that still run."""
    return sum(os.times()[:4]) + sum(map(_running_s, _children(os.getpid())))


def _running_s(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended
        return 0.0
    ticks = sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(_running_s, _children(process)))


def _children(process: int) -> list[int]:
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in lists for child in path.read_text().split()]


def _process(arguments: list[str], caches: str) -> dict[str, float]:
    folders = {"SHARDC_CACHE_DIR": f"{caches}/shardc", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
    environment = os.environ | folders | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).parent), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, what: str, repeats: int) -> dict[str, float]:
    """Measure a model in one direction, in processes of its own."""
    found: dict[str, float] = {}
    chosen = ["--models", name, "--what", what, "--repeats", str(repeats)]
    for backend in BACKENDS[:2]:
        with tempfile.TemporaryDirectory() as caches:
            for key, value in _process([*chosen, "--cold", backend], caches).items():
                found[f"{key} {backend}"] = value
    with tempfile.TemporaryDirectory() as caches:
        return found | _process([*chosen, "--steps"], caches)


def _line(name: str, what: str, row: dict[str, float]) -> list[object]:
    pairs = [("shardc", "inductor"), ("shardc", "eager")]
    pairs += [(f"{key} shardc", f"{key} inductor") for key in ("cold_s", "peak_bytes")]
    times = [1e3 * row[b] for b in BACKENDS]
    return [name, what, *times, *(row[a] / row[b] if row[b] else math.nan for a, b in pairs)]


COLUMNS = ["model", "step", "shardc ms", "Inductor ms", "eager ms", "/ Inductor", "/ eager"]
COLUMNS += ["cold compile", "peak memory"]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--models", nargs="*", default=list(SUBJECTS), choices=list(SUBJECTS))
    options.add_argument("--what", nargs="*", default=list(WHAT), choices=WHAT)
    options.add_argument("--repeats", type=int, default=15)
    options.add_argument("--results", type=Path, help="file of finished rows, to continue")
    options.add_argument("--cold", choices=BACKENDS, help=argparse.SUPPRESS)
    options.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.cold:
        print(json.dumps(cold(chosen.models[0], chosen.what[0], chosen.cold)))
        return
    if chosen.steps:
        print(json.dumps(steps(chosen.models[0], chosen.what[0], chosen.repeats)))
        return
    kept = chosen.results.read_text().splitlines() if chosen.results and chosen.results.exists() else []
    rows = {(r["model"], r["what"]): r["row"] for r in map(json.loads, kept)}
    lines: list[list[object]] = []
    for name in chosen.models:
        for what in chosen.what:
            if (name, what) not in rows:
                try:
                    rows[name, what] = row(name, what, chosen.repeats)
                except RuntimeError as failure:  # goes into the table
                    lines.append([name, what, str(failure)[:80], *[""] * (len(COLUMNS) - 3)])
                    print(name, what, failure, file=sys.stderr)
                    continue
                if chosen.results:
                    with chosen.results.open("a") as file:
                        print(json.dumps({"model": name, "what": what, "row": rows[name, what]}), file=file)
            lines.append(_line(name, what, rows[name, what]))
            print(
                " ".join(f"{c:.2f}" if isinstance(c, float) else str(c) for c in lines[-1]), file=sys.stderr
            )
    print(heading("Whole models that are in no other list"))
    print(table(COLUMNS, lines))
    for column in range(5, len(COLUMNS)):
        ratios = [line[column] for line in lines if isinstance(line[column], float)]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{COLUMNS[column]}: geometric mean {mean:.2f}, largest {max(ratios):.2f}.")


if __name__ == "__main__":
    main()
