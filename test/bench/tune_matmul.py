"""Tuned matmuls against oneDNN, and against TVM MetaSchedule at the same number of trials: one thread, one
run.

    python test/bench/tune_matmul.py                                   # oneDNN
    python test/bench/tune_matmul.py --tvm tvm/bin/python --trials 64  # TVM too, see tvm_matmul.py

A shape m x k x n is relu(x w^T + b) in f32, with TVM relu(x w + b), on which TVM does better; oneDNN has x
w^T, its own form. It is tuned into a database of its own, from nothing but the shipped cost model; then the
kernel untuned, at its analytic choice, at its best point, and oneDNN (with its own bias and relu) take turns,
in CPU time of the thread, medians of ``--repeats`` rounds. TVM times its best in its own process right after.
Rates are GFLOP/s; ``wall`` is that of tuning.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import torch
from cpu_kernels import measure
from machine import heading, table
from tune_tasks import F32, matmul

from shardc.backends.cpu.compile import compile_functions
from shardc.backends.tuning.kernel_text import configured
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.reference import make_reference
from shardc.backends.tuning.task import NAME, Task
from shardc.commands.tune import tune_jobs
from shardc.runtime.kernels.library import Library, sealed
from shardc.tuner.database.database import open_database
from shardc.tuner.measurer import Measurer
from shardc.tuner.session import Budget
from shardc.tuner.task_scheduler import Job

SIZES = (
    "128x128x128",
    "256x256x256",
    "512x512x512",
    "1024x1024x1024",
    "2048x512x2048",
    "256x1024x4096",
    "1024x4096x1024",
    "64x2048x512",
)
linear = torch.ops.mkldnn._linear_pointwise


@dataclass(frozen=True)
class Tuned:
    """What a session found, and how long it took."""

    task: Task
    analytic: Point
    best: Point | None
    wall_s: float
    trials: int


def tuned(m: int, k: int, n: int, transposed: bool, trials: int, folder: Path) -> Tuned:
    task = matmul(m, k, n, F32, "relu", transposed).task()
    started = time.monotonic()
    with open_database(folder / f"{m}x{k}x{n}.db") as database, Measurer() as measurer:
        found = tune_jobs([Job(task)], database, measurer, Budget(trials=trials, regret=0.0))
    (result,) = found.tasks
    assert result.analytic is not None
    return Tuned(task, result.analytic, result.chosen, time.monotonic() - started, found.trials)


def kernel(task: Task, point: Point | None, shape: tuple[int, int], folder: Path) -> Callable[[], object]:
    """A call of the task's kernel at ``point`` on inputs of its own."""
    module = configured(task, point)
    inputs = make_reference(next(iter(module.body)).operation).inputs
    path = (
        folder / f"{shape[0]}x{shape[1]} {task.structure} {point}.so"
    )  # a file that is loaded must not be written again
    if not path.exists():
        path.write_bytes(sealed(compile_functions(configured(task, point))))
    call = Library(path).kernel(NAME, [(shape, torch.float32)])
    return lambda: call(*inputs)


def peer(python: str, size: str, trials: int) -> dict[str, float]:
    """TVM's wall time and seconds."""
    script = Path(__file__).with_name("tvm_matmul.py")
    command = [python, str(script), *size.split("x"), str(trials)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"TVM failed on {size}: {made.stderr[-2000:]}")
    return json.loads(made.stdout.splitlines()[-1])


def geometric(values: list[float]) -> float:
    return exp(statistics.fmean(map(log, values)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--tvm", help="the interpreter that has TVM")
    parser.add_argument("--repeats", type=int, default=31)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, ratios = [], {"oneDNN": [], "TVM": [], "wall": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in options.sizes:
            m, k, n = map(int, size.split("x"))
            found = tuned(m, k, n, not options.tvm, options.trials, folder)
            x, w, b = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
            calls = {
                "untuned": kernel(found.task, None, (m, n), folder),
                "analytic": kernel(found.task, found.analytic, (m, n), folder),
                "tuned": kernel(found.task, found.best, (m, n), folder),
                "oneDNN": lambda x=x, w=w, b=b: linear(x, w, b, "relu", [], ""),
            }
            seconds = measure(calls, options.repeats, time.thread_time)
            rate = {name: 2e-9 * m * k * n / s for name, s in seconds.items()}
            ratios["oneDNN"].append(rate["tuned"] / rate["oneDNN"])
            row = [
                size,
                rate["untuned"],
                rate["analytic"],
                rate["tuned"],
                rate["oneDNN"],
                ratios["oneDNN"][-1],
                found.trials,
                found.wall_s,
            ]
            if options.tvm:
                theirs = peer(options.tvm, size, options.trials)
                rate_tvm = 2e-9 * m * k * n / theirs["seconds"]
                ratios["TVM"].append(rate["tuned"] / rate_tvm)
                ratios["wall"].append(found.wall_s / theirs["wall_s"])
                row += [rate_tvm, ratios["TVM"][-1], theirs["wall_s"], ratios["wall"][-1]]
            rows.append(row)
            print(*row, flush=True)
    columns = ["m x k x n", "untuned", "analytic", "tuned", "oneDNN", "of oneDNN", "trials", "wall s"]
    columns += ["TVM", "of TVM", "TVM's wall s", "of its wall"] if options.tvm else []
    print(heading("Tuned matmuls"))
    print(table(columns, rows))
    for name, values in ratios.items():
        if values:
            print(f"geometric mean of {name}: {geometric(values):.2f}")


if __name__ == "__main__":
    main()
