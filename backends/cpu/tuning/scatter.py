"""Space of sums of rows at computed indices (``backends/cpu/emit/scatter.py``): pieces of rows per thread."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from shardc.backends.cpu.emit.scatter import FEW_ROWS
from shardc.backends.tuning.sketches import legal
from shardc.backends.tuning.space import Parameter, Sketch
from shardc.cost.machine import Cpu
from shardc.dialects.kern.scatter_add import ScatterAdd
from shardc.dialects.kern.size import hint


def sketch(spec: ScatterAdd, threads: int, machine: Cpu) -> Sketch:
    """Return the sketch of a ``kern.scatter_add``. Only 16-bit rows with several threads are divided."""
    inner, count, rows = hint(spec.inner), hint(spec.count) * hint(spec.outer), hint(spec.rows)
    wide = spec.out.dtype in (torch.float16, torch.bfloat16)
    item = spec.out.dtype.itemsize
    matters = wide and threads > 1 and rows >= FEW_ROWS and inner > 32
    values = tuple(sorted({n for n in (32, 64, 128, 256, 512, 1024) if n < 2 * inner} | {256}))
    parameters = (Parameter("columns", values),) if matters else ()

    def estimate_s(point: Mapping[str, int]) -> float:
        pieces = max(1, min(threads, -(-inner // point.get("columns", inner))))
        units = min(count, rows) * pieces
        moved = count * inner * item * 3 / machine.rate(count * inner * item)
        cycles = moved / max(1, min(threads, units)) + count * pieces * 40 / threads
        return cycles / machine.clock_hz

    return Sketch("scatter_add", parameters, legal, estimate_s)
