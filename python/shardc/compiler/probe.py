"""Measures this machine's rates: matmuls, copies, calls, and messages between processes.

Two processes measure the messages, and four on two cores what it costs to share a core:
``python -m shardc.compiler.probe RANK PROCESSES FILE``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist

from shardc.cost.cluster.local import Figures
from shardc.diagnostics.cluster import ProbeFailed
from shardc.environment import WORLD_SIZE, child_environment

ROWS = 1024
"""Rows of the matmul's matrices, as large as in small models."""
COPIED = (4096, 8192)
"""Shape of the copied tensor, in 4-byte numbers: larger than caches."""
LONG, SHORT = (2048, 2048), (1,)
"""Shapes of a long and a short message, in 4-byte numbers."""
MIDDLE = (1 << 16,)
"""Shape of a message between processes that share cores."""
BETWEEN = (384, 384)
"""Shape of the factors of products between messages of processes that share cores."""
CROWD, CORES = 4, 2
"""Number of processes that share cores, and of the cores."""
LIMIT_S = 60.0
_FORM = 4
"""Number of the form of the measurements; it changes with what is measured."""


class Machine(NamedTuple):
    """What identifies a machine: its processor, usable cores, memory in bytes, and torch."""

    processor: str
    cores: int
    memory_bytes: int
    torch_version: str


def machine() -> Machine:
    """Return what identifies this machine."""
    return Machine(_processor(), len(os.sched_getaffinity(0)), _memory_bytes(), torch.__version__)


def conditions() -> tuple[object, ...]:
    """Return what measurements depend on: their form, this machine, and the threads of this process."""
    return _FORM, machine(), torch.get_num_threads()


def measure() -> Figures:
    """Measure this machine. Raises ProbeFailed if two processes cannot reach one another."""
    more, cores = _messages(2) | _messages(CROWD), len(os.sched_getaffinity(0))
    one, threads, own = torch.zeros(8), torch.get_num_threads(), _rates()
    if threads < cores:
        torch.set_num_threads(cores)
        try:
            more |= {f"all_{name}": rate for name, rate in _rates().items()}
        finally:
            torch.set_num_threads(threads)
    return Figures(
        memory_bytes=float(_memory_bytes()),
        **own,
        launch_s=_fastest(lambda: one.add_(1.0), 200),
        cores=float(cores),
        **more,
    )


def _rates() -> dict[str, float]:
    f32, bf16 = (_product_flop_s(dtype) for dtype in (torch.float32, torch.bfloat16))
    return {"f32_flop_s": f32, "bf16_flop_s": bf16, "memory_bytes_s": _copied_bytes_s()}


def _fastest(run: Callable[[], object], times: int) -> float:
    """Return the seconds of the fastest of ``times`` runs, after one warm-up."""
    run()
    return min(_seconds(run) for _ in range(times))


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _product_flop_s(dtype: torch.dtype) -> float:
    left = torch.randn(ROWS, ROWS, generator=torch.Generator()).to(dtype)
    return 2 * ROWS**3 / _fastest(lambda: left @ left, 5)


def _copied_bytes_s() -> float:
    source, target = torch.zeros(COPIED), torch.ones(COPIED)
    return 2 * source.nbytes / _fastest(lambda: target.copy_(source), 5)


def _messages(processes: int) -> dict[str, float]:
    """Return the rates of messages, which some processes measure and the first prints."""
    with tempfile.TemporaryDirectory() as folder:
        meet = Path(folder) / "meet"
        first, *others = [_started(rank, processes, meet) for rank in range(processes)]
        try:
            said, wrong = first.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise ProbeFailed(problem=f"they did not meet within {LIMIT_S:.0f} s") from None
        finally:
            for process in (first, *others):
                process.kill()
                process.communicate()
    if first.returncode:
        raise ProbeFailed(problem=(wrong.strip().splitlines() or ["no word"])[-1])
    return json.loads(said)


def _started(rank: int, processes: int, meet: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __name__, str(rank), str(processes), str(meet)]
    pipe, environment = subprocess.PIPE, child_environment(**{WORLD_SIZE.name: None})
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def take_part(rank: int, processes: int, meet: Path) -> dict[str, float]:
    """Measure messages and all-reduces, in seconds, as one of the processes."""
    limit = timedelta(seconds=LIMIT_S)
    meeting = {"init_method": meet.as_uri(), "rank": rank, "world_size": processes, "timeout": limit}
    dist.init_process_group("gloo", **meeting)
    found = _alone(rank) if processes == 2 else _crowded(processes)
    dist.destroy_process_group()
    return found


def _alone(rank: int) -> dict[str, float]:
    short, long = torch.zeros(SHORT), torch.zeros(LONG)
    step_s = _fastest(lambda: _ping_pong(rank, short), 50) / 2
    collective_s = _fastest(lambda: dist.all_reduce(short), 50)
    long_s = _fastest(lambda: dist.all_reduce(long), 9)
    sent = long.nbytes / max(long_s - collective_s, 0.1 * long_s)
    return {"message_s": step_s, "collective_s": collective_s, "sent_bytes_s": sent}


def _crowded(processes: int) -> dict[str, float]:
    """Measure a step of a ring on :data:`CORES` cores, or fewer if there are fewer.

    All-reduces follow products, as in a step of training: processes do not end these at the same time.
    """
    torch.set_num_threads(1)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    middle, factor = torch.zeros(MIDDLE), torch.randn(BETWEEN)

    def compute() -> None:
        for _ in range(3):
            torch.mm(factor, factor)

    def both() -> None:
        compute()
        dist.all_reduce(middle)

    _together(both)
    seconds = median(_together(both) - _together(compute) for _ in range(5))
    return {"crowded_s": max(seconds, 0.0) / (2 * (processes - 1))}


def _together(run: Callable[[], object], times: int = 20) -> float:
    """Return the mean seconds of runs on all processes at once, until the last process is done."""
    dist.barrier()
    started = time.perf_counter()
    for _ in range(times):
        run()
    dist.barrier()
    return (time.perf_counter() - started) / times


def _ping_pong(rank: int, tensor: torch.Tensor) -> None:
    for sender in (0, 1):
        if rank == sender:
            dist.send(tensor, 1 - rank)
        else:
            dist.recv(tensor, 1 - rank)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _processor() -> str:
    """Return the processor's name as Linux prints it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


if __name__ == "__main__":
    print(json.dumps(take_part(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
