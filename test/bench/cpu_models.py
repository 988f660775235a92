"""Whole models, forward and backward, on the CPU: shardc's backend against TorchInductor and eager PyTorch.

    python test/bench/cpu_models.py                               # step times, 10M parameters, one thread and
    all python test/bench/cpu_models.py --models llama --size 50M --threads 1 python test/bench/cpu_models.py
    --what start --size 50M       # cold compile, and warm start from the disk cache python
    test/bench/cpu_models.py --what memory python test/bench/cpu_models.py --what tensors

Step times are medians of ``--repeats`` rounds in one process; a round calls each contender once. One thread
is timed in its own CPU time, several in wall time. A start is what a fresh process does from the call of
``torch.compile`` to the end of the first forward and backward, in CPU seconds (those of processes that it
started too) less a later step: cold with empty cache folders, warm with those that the cold one filled;
imports and making the model come before it. Memory is what the resident set grows over its low point during
steps (Linux), in a process for each contender; ``--what tensors`` is what torch's allocator counts in one
step without older gradients, shardc's pool off: the most that is taken until the loss is there, what the
forward has saved, and the most after that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from math import exp, log
from pathlib import Path

import torch
import whole_models
from machine import heading, table
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from shardc.runtime.kernels import pool

BACKENDS = ("shardc", "inductor", "eager")
MARK_BYTES = 12345
"""An allocation of so many bytes stands between forward and backward."""


def _step(name: str, size: str, backend: str) -> tuple[torch.nn.Module, Callable[[], torch.Tensor]]:
    model, loss_of = whole_models.make(name, size)
    called = model if backend == "eager" else torch.compile(model, backend=backend, dynamic=False)

    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = loss_of(called)
        loss.backward()
        return loss.detach()

    return model, step


def _check(models: dict[str, torch.nn.Module], losses: dict[str, torch.Tensor]) -> None:
    """Losses and gradients of all contenders after one step, against eager's, which in f32 are off themselves
    (a ReLU at zero that flips moves a convolution's gradient by 3e-2 of its largest element).
    """
    for backend, model in models.items():
        torch.testing.assert_close(losses[backend], losses["eager"], rtol=1e-4, atol=1e-5)
        for (name, p), q in zip(model.named_parameters(), models["eager"].parameters(), strict=True):
            if q.grad is None:
                assert p.grad is None, name
                continue
            error = (p.grad - q.grad).norm() / (q.grad.norm() + 1e-6)
            assert error < 3e-2, f"{backend}: the gradient of {name} is off by {error:.1e}"


def step_times(name: str, size: str, threads: int, repeats: int) -> list[object]:
    """A row of the table; raises if losses or gradients differ."""
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    made = {backend: _step(name, size, backend) for backend in BACKENDS}
    losses = {backend: step() for backend, (_, step) in made.items()}
    _check({backend: model for backend, (model, _) in made.items()}, losses)
    clock = time.thread_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for round_ in range(repeats + 1):
        for backend, (_, step) in made.items():
            start = clock()
            step()
            if round_:
                times[backend].append(clock() - start)
    ms = {backend: 1e3 * statistics.median(found) for backend, found in times.items()}
    millions = whole_models.parameters(made["eager"][0]) / 1e6
    ratio = ms["shardc"] / ms["inductor"]
    return [
        name,
        millions,
        threads,
        ms["shardc"],
        ms["inductor"],
        ms["eager"],
        ratio,
        ms["shardc"] / ms["eager"],
    ]


def start(name: str, size: str, backend: str) -> dict[str, float]:
    """In this process, the first of its kind: CPU seconds of the first step over those of a later one, and
    memory.
    """
    model, loss_of = whole_models.make(name, size)
    begin = _cpu_s()
    called = model if backend == "eager" else torch.compile(model, backend=backend, dynamic=False)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        loss_of(called).backward()

    seconds = []
    for _ in range(3):
        step()
        seconds.append(_cpu_s() - begin)
        begin = _cpu_s()
    return {"first_s": seconds[0] - seconds[2], "memory_bytes": _growth(step)}


def _cpu_s() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def tensors(name: str, size: str, backend: str) -> dict[str, float]:
    """In this process: bytes that torch's allocator counts in a step (see above)."""
    pool.POOLED_BYTES = 1 << 62
    model, loss_of = whole_models.make(name, size)
    called = model if backend == "eager" else torch.compile(model, backend=backend, dynamic=False)
    for _ in range(2):
        loss_of(called).backward()
        model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        loss = loss_of(called)
        marker = torch.empty(MARK_BYTES, dtype=torch.uint8)
        loss.backward()
    del marker
    events, found = list(prof.profiler.kineto_results.experimental_event_tree()), []
    while events:
        event = events.pop()
        events += event.children
        if event.tag == _EventType.Allocation:
            found.append(
                (event.start_time_ns, event.extra_fields.alloc_size, event.extra_fields.total_allocated)
            )
    taken = [(size, total) for _, size, total in sorted(found)]
    loss_at = next(number for number, (size, _) in enumerate(taken) if size == MARK_BYTES)
    forward, backward = (max(total for _, total in part) for part in (taken[:loss_at], taken[loss_at:]))
    return {"forward": forward, "saved": taken[loss_at - 1][1], "backward": backward}


def _growth(step: Callable[[], object]) -> int:
    """Bytes by which the resident set grows during a step over what it is before (Linux: VmHWM, reset)."""
    low = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(2):
        step()
    return _status("VmHWM") - low


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _started(
    name: str, size: str, backend: str, caches: str, threads: int, what: str = "--start"
) -> dict[str, float]:
    """:func:`start` or :func:`tensors` in a process of its own, with caches under ``caches``."""
    folders = {"SHARDC_CACHE_DIR": f"{caches}/shardc", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
    command = [sys.executable, __file__, "--models", name, "--size", size, what, backend]
    environment = os.environ | folders | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def start_times(name: str, size: str, threads: int, repeats: int) -> list[object]:
    """A row of cold and warm starts: medians of ``repeats`` of each, in turn."""
    cold: dict[str, list[float]] = {"shardc": [], "inductor": []}
    warm: dict[str, list[float]] = {"shardc": [], "inductor": []}
    for _ in range(repeats):
        for backend in cold:
            with tempfile.TemporaryDirectory() as caches:
                cold[backend].append(_started(name, size, backend, caches, threads)["first_s"])
                warm[backend].append(_started(name, size, backend, caches, threads)["first_s"])
    found = [statistics.median(times[backend]) for times in (cold, warm) for backend in times]
    return [name, size, *found, found[0] / found[1]]


def memory(name: str, size: str, threads: int) -> list[object]:
    """A row of the megabytes by which a step grows the resident set."""
    with tempfile.TemporaryDirectory() as caches:
        found = [_started(name, size, backend, caches, threads)["memory_bytes"] / 1e6 for backend in BACKENDS]
    return [name, size, *found, found[0] / found[1]]


def tensor_memory(name: str, size: str, threads: int) -> list[object]:
    """A row of the megabytes that tensors take."""
    with tempfile.TemporaryDirectory() as caches:
        found = {b: _started(name, size, b, caches, threads, "--tensors") for b in ("shardc", "inductor")}
    figures = [found[b][what] / 1e6 for what in ("forward", "saved", "backward") for b in found]
    peaks = [max(found[b]["forward"], found[b]["backward"]) for b in found]
    return [name, size, *figures, peaks[0] / peaks[1]]


def geometric_mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def _rows(chosen: argparse.Namespace) -> Iterator[list[object]]:
    for threads in dict.fromkeys(chosen.threads):
        for name in chosen.models:
            if chosen.what == "steps":
                row = step_times(name, chosen.size, threads, chosen.repeats)
            elif chosen.what == "start":
                row = start_times(name, chosen.size, threads, chosen.repeats)
            elif chosen.what == "tensors":
                row = tensor_memory(name, chosen.size, threads)
            else:
                row = memory(name, chosen.size, threads)
            print(
                " ".join(f"{c:.2f}" if isinstance(c, float) else str(c) for c in row),
                file=sys.stderr,
                flush=True,
            )
            yield row


COLUMNS = {
    "steps": [
        "model",
        "M parameters",
        "threads",
        "shardc ms",
        "Inductor ms",
        "eager ms",
        "/ Inductor",
        "/ eager",
    ],
    "start": ["model", "size", "cold s", "Inductor cold s", "warm s", "Inductor warm s", "cold / Inductor"],
    "memory": ["model", "size", "shardc MB", "Inductor MB", "eager MB", "/ Inductor"],
    "tensors": [
        "model",
        "size",
        "forward MB",
        "Inductor",
        "saved MB",
        "Inductor",
        "backward MB",
        "Inductor",
        "peak / Inductor",
    ],
}
RATIO = {"steps": -2, "start": -1, "memory": -1, "tensors": -1}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--what", choices=COLUMNS, default="steps")
    options.add_argument("--models", nargs="*", default=whole_models.MODELS, choices=whole_models.MODELS)
    options.add_argument("--size", default="10M", choices=whole_models.SIZES)
    options.add_argument("--threads", nargs="*", type=int, default=[1, torch.get_num_threads()])
    options.add_argument("--repeats", type=int, default=11)
    options.add_argument("--start", choices=BACKENDS, help=argparse.SUPPRESS)
    options.add_argument("--tensors", choices=BACKENDS, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.tensors:
        print(json.dumps(tensors(chosen.models[0], chosen.size, chosen.tensors)))
        return
    if chosen.start:
        print(json.dumps(start(chosen.models[0], chosen.size, chosen.start)))
        return
    rows = list(_rows(chosen))
    print(heading(f"Whole models, {chosen.what}"))
    print(table(COLUMNS[chosen.what], rows))
    print(
        f"Geometric mean of the ratios to Inductor: "
        f"{geometric_mean([r[RATIO[chosen.what]] for r in rows]):.2f}"
    )


if __name__ == "__main__":
    main()
