"""Compiles Triton modules ahead of time, for any of the targets, on a machine without a GPU.

Triton and the assembler run in processes of their own: a crash or a compile without an end costs one kernel.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from shardc.backends.triton.emit.emitted import Emitted
from shardc.cost.machine import Gpu
from shardc.diagnostics.triton import TooMuchSharedMemory, TritonCompileFailed, TritonMissing, TritonTooOld
from shardc.environment import child_environment
from shardc.runtime.kernels.triton_kernels import OLDEST

WORKER = Path(__file__).with_name("worker.py")
LIMIT_S = 120
"""A kernel that takes longer is given up."""


@dataclass(frozen=True)
class Figures:
    """Resources and instructions of one function: accesses are of global memory, wide ones 16 bytes a thread.
    ``aligned``: the sizes that this binary takes to be multiples of 16.
    """

    name: str
    binary: str
    metadata: str
    num_warps: int
    shared_bytes: int
    registers: int
    spill_bytes: int
    local_accesses: int
    loads: int
    wide_loads: int
    stores: int
    wide_stores: int
    matrix_ops: int
    aligned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """A kernel for a target: figures of each of its functions, or why there are none."""

    kernel: Emitted
    target: Gpu
    functions: tuple[Figures, ...] = ()
    error: TritonCompileFailed | TooMuchSharedMemory | None = None


def compile_kernels(
    kernels: Sequence[Emitted],
    targets: Sequence[Gpu],
    folder: Path,
    processes: int = 2,
    limit_s: float = LIMIT_S,
) -> list[Compiled]:
    """Compile every kernel for every target, in this order; modules and Triton's cache lie in ``folder``.

    A kernel that does not compile has an ``error``. Raises TritonMissing, TritonTooOld.
    """
    check_triton(", ".join(t.name for t in targets))
    folder.mkdir(parents=True, exist_ok=True)
    for kernel in kernels:
        (folder / f"{kernel.name}.py").write_text(kernel.text)
    tasks: SimpleQueue[int] = SimpleQueue()
    pairs = [(kernel, target) for kernel in kernels for target in targets]
    for number in range(len(pairs)):
        tasks.put(number)
    made: list[Compiled | None] = [None] * len(pairs)

    def work() -> None:
        process = _Process(folder, limit_s)
        while True:
            try:
                number = tasks.get_nowait()
            except Empty:
                process.end()
                return
            made[number] = _compiled(*pairs[number], process)

    threads = [threading.Thread(target=work) for _ in range(min(processes, len(pairs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [m for m in made if m is not None]


def _compiled(kernel: Emitted, target: Gpu, process: _Process) -> Compiled:
    answer = process.ask(kernel, target)
    if "error" in answer:
        return Compiled(
            kernel,
            target,
            error=TritonCompileFailed(name=kernel.name, target=target.name, reason=answer["error"]),
        )
    found = tuple(Figures(**f) for f in answer["functions"])
    most = max((f.shared_bytes for f in found), default=0)
    if most > target.shared_bytes:
        error = TooMuchSharedMemory(
            name=kernel.name, target=target.name, needed_bytes=most, shared_bytes=target.shared_bytes
        )
        return Compiled(kernel, target, found, error)
    return Compiled(kernel, target, found)


class _Process:
    """A worker, started when it is first asked, and again after it ended."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self._folder, self._limit_s = folder, limit_s
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, kernel: Emitted, target: Gpu) -> dict[str, Any]:
        if self._process is None:
            cache = str(self._folder / "cache")
            environment = child_environment(TRITON_CACHE_DIR=cache, TRITON_INTERPRET=None)
            command = [sys.executable, str(WORKER)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                stderr=subprocess.DEVNULL,
            )
        asked = {
            "path": str(self._folder / f"{kernel.name}.py"),
            "backend": target.backend,
            "arch": target.arch,
            "warp_size": target.warp_size,
            "functions": [asdict(f) for f in kernel.functions],
        }
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._line()
        if answer:
            return json.loads(answer)
        self._process.kill()
        code = self._process.wait()
        self._process = None
        return {
            "error": f"it took more than {self._limit_s:g} s"
            if answer is None
            else f"its process ended with {code}"
        }

    def _line(self) -> bytes | None:
        """The answer; empty if the process ended, None if it takes too long."""
        out = self._process.stdout
        return out.readline() if select.select([out], [], [], self._limit_s)[0] else None

    def end(self) -> None:
        if self._process is not None:
            self._process.communicate()


@cache
def check_triton(target: str) -> None:
    """Raises TritonMissing or TritonTooOld unless kernels can be compiled. Does not import Triton."""
    oldest = ".".join(map(str, OLDEST))
    try:
        found = version("triton")
    except PackageNotFoundError as error:
        raise TritonMissing(target=target, problem=f"no package {error}", oldest=oldest) from None
    if tuple(int(n) for n in found.split("+")[0].split(".")[:2]) < OLDEST:
        raise TritonTooOld(found=found, oldest=oldest)
