"""Builder of binaries from points of Triton kernels; the machine may lack the GPU."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch_mlir import ir

from shardc.backends.triton.aot.compile import Compiled, Figures, compile_kernels
from shardc.backends.triton.emit.emit import emit_function
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.emit.names import said_of_function
from shardc.backends.tuning.kernel_text import configured
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import NAME, Task
from shardc.backends.tuning.trial import Built
from shardc.cache.scratch import scratch
from shardc.cost.machine import Gpu, find_gpu
from shardc.cost.matmul import SPILL_BOUND
from shardc.diagnostics.base import ShardcError

LIMIT_S = 60.0
"""Limit for one compile; a point that takes longer fails."""
INSTRUCTIONS = ("loads", "wide_loads", "stores", "wide_stores", "matrix_ops")
"""Instructions counted in binaries; wide ones move 16 bytes per thread."""


class GpuBuilder:
    """Compiles points ahead of time, ``processes`` at once, into a folder that ``close`` removes.

    A crash, time-out (``limit_s``), or spills over ``SPILL_BOUND`` times the estimate fail that point alone.
    """

    def __init__(self, processes: int | None = None, limit_s: float = LIMIT_S) -> None:
        self._processes, self._limit_s = processes or (os.cpu_count() or 2), limit_s
        self._folder = scratch()
        self._count = 0

    def start(self) -> None:
        """Do nothing: the processes start with each build."""

    def build(self, task: Task, points: Sequence[Point | None]) -> Iterator[Built]:
        """Yield each point's result, in order; equal modules are compiled once.

        ``path`` of a result is the module, beside the cache of its binaries. The backend's own choice (None)
        may spill.

        Raises UnknownTarget, TritonMissing, TritonTooOld.
        """
        target, started = find_gpu(task.target), time.monotonic()
        emitted: dict[int, Emitted] = {}
        made: dict[int, Built] = {}
        for number, point in enumerate(points):
            try:
                emitted[number] = self._emit(task, point, target)
            except ShardcError as error:
                made[number] = Built(point, said=str(error))
        codes = {number: _code(each) for number, each in emitted.items()}
        first = {code: number for number, code in reversed(codes.items())}
        asked, folder = [emitted[n] for n in first.values()], Path(self._folder.name)
        found = compile_kernels(asked, [target], folder, self._processes, self._limit_s) if asked else []
        compiled = dict(zip(first, found, strict=True))
        seconds = (time.monotonic() - started) / max(1, len(points))
        for number, code in codes.items():
            path = folder / f"{compiled[code].kernel.name}.py"
            made[number] = _built(points[number], code, compiled[code], path, seconds)
        for number in range(len(points)):
            yield made[number]

    def close(self) -> None:
        self._folder.cleanup()

    def _emit(self, task: Task, point: Point | None, target: Gpu) -> Emitted:
        module = configured(task, point)
        (view,) = module.body
        function, self._count = view.operation, self._count + 1
        with module.context:  # a separate file for each point
            function.attributes["sym_name"] = ir.StringAttr.get(f"{NAME}_{self._count}")
        tf32 = torch.get_float32_matmul_precision() != "highest"
        return emit_function(function, said_of_function(function), target, tf32=tf32)


def _code(emitted: Emitted) -> str:
    """Return a hash of the module without its own name."""
    text = f"{emitted.text} {[(f.num_warps, f.num_stages) for f in emitted.functions]}"
    return hashlib.sha256(text.replace(emitted.name, NAME).encode()).hexdigest()[:32]


def _built(point: Point | None, code: str, compiled: Compiled, path: Path, seconds: float) -> Built:
    functions, target = compiled.functions, compiled.target
    figures = {
        "registers": max((f.registers for f in functions), default=0),
        "spill_bytes": max((f.spill_bytes for f in functions), default=0),
        "shared_bytes": max((f.shared_bytes for f in functions), default=0),
        **{name: sum(getattr(f, name) for f in functions) for name in INSTRUCTIONS},
    }
    estimate = compiled.kernel.estimate
    priced = estimate.spill_bytes if estimate is not None else 0
    refused = [] if point is None else [said for f in functions if (said := _excess(f, target, priced))]
    said = str(compiled.error) if compiled.error else next(iter(refused), "")
    return Built(point, None if said else path, code, seconds, said, figures)


def _excess(function: Figures, target: Gpu, priced: int) -> str | None:
    """Return which limit a function exceeds, or None. ``priced``: spilled bytes in the estimate."""
    if function.spill_bytes > SPILL_BOUND * priced:
        return f"{function.name} spills {function.spill_bytes} bytes of registers a thread"
    needed, limit = function.registers * function.num_warps * target.warp_size, target.unit_registers
    return f"{function.name} needs {needed} registers, {target.name} has {limit}" if needed > limit else None
