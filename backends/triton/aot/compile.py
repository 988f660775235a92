"""Ahead-of-time compilation of Triton modules for any target, on a machine without a GPU.

Triton and the assembler run in separate processes, so a crash or an endless compile affects only one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import SimpleQueue

from shardc.backends.triton.emit.emitted import Emitted
from shardc.workers.process import Ended, Process, Refused, TookTooLong
from shardc.cost.machine import Gpu
from shardc.diagnostics.triton import TooMuchSharedMemory, TritonCompileFailed, TritonMissing, TritonTooOld
from shardc.runtime.kernels.triton_kernels import OLDEST
from shardc.runtime.report import progress

ROLE = "shardc.backends.triton.aot.worker:compile_module"
LIMIT_S = 120
"""Time limit of a kernel, in seconds."""


@dataclass(frozen=True)
class Figures:
    """Resources and instruction counts of one function.

    Accesses are of global memory; wide ones have 16 bytes per thread. ``aligned``: sizes that this binary
    assumes to be multiples of 16.
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
    """Kernel compiled for a target: figures of each of its functions, or an error."""

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
    """Compile every kernel for every target, in this order. ``folder``: for modules and Triton's cache.

    A kernel that does not compile has an ``error``. Raises TritonMissing, TritonTooOld.
    """
    check_triton(", ".join(t.name for t in targets))
    folder.mkdir(parents=True, exist_ok=True)
    for kernel in kernels:
        (folder / f"{kernel.name}.py").write_text(kernel.text)
    pairs = [(kernel, target) for kernel in kernels for target in targets]
    environment = {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_INTERPRET": None}
    workers = [Process(ROLE, environment) for _ in range(max(1, min(processes, len(pairs))))]
    idle: SimpleQueue[Process] = SimpleQueue()

    def compiled(pair: tuple[Emitted, Gpu]) -> Compiled:
        worker = idle.get()
        try:
            return _compiled(*pair, folder, worker, limit_s)
        finally:
            idle.put(worker)

    for worker in workers:
        idle.put(worker)
    try:
        with ThreadPoolExecutor(len(workers)) as threads:
            made = []
            for found in threads.map(compiled, pairs):
                made.append(found)
                progress.step("kernels of Triton", len(made), len(pairs))
            return made
    finally:
        for worker in workers:
            worker.end()


def _compiled(kernel: Emitted, target: Gpu, folder: Path, worker: Process, limit_s: float) -> Compiled:
    asked = {
        "path": str(folder / f"{kernel.name}.py"),
        "backend": target.backend,
        "arch": target.arch,
        "warp_size": target.warp_size,
        "functions": [asdict(f) for f in kernel.functions],
    }
    try:
        found = tuple(Figures(**f) for f in worker.ask(asked, limit_s))
    except (Refused, TookTooLong, Ended) as error:
        late, ended = f"it took more than {limit_s:g} s", f"its process ended with {error}"
        reason = {Refused: str(error), TookTooLong: late, Ended: ended}[type(error)]
        failed = TritonCompileFailed(name=kernel.name, target=target.name, reason=reason)
        return Compiled(kernel, target, error=failed)
    needed, limit = max((f.shared_bytes for f in found), default=0), target.shared_bytes
    if needed <= limit:
        return Compiled(kernel, target, found)
    error = TooMuchSharedMemory(name=kernel.name, target=target.name, needed_bytes=needed, shared_bytes=limit)
    return Compiled(kernel, target, found, error)


@cache
def check_triton(target: str) -> None:
    """Raise TritonMissing or TritonTooOld unless kernels can be compiled. It does not import Triton."""
    oldest = ".".join(map(str, OLDEST))
    try:
        found = version("triton")
    except PackageNotFoundError as error:
        raise TritonMissing(target=target, problem=f"no package {error}", oldest=oldest) from None
    if tuple(int(n) for n in found.split("+")[0].split(".")[:2]) < OLDEST:
        raise TritonTooOld(found=found, oldest=oldest)
