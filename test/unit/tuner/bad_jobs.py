"""Jobs of a builder and a runner in which points named for it fail."""

from __future__ import annotations

import os
import time

from torch_mlir import ir

from shardc.backends.cpu.tuning import build_job as builder
from shardc.backends.cpu.tuning import run_job as runner
from shardc.backends.tuning.bench import Measure
from shardc.backends.tuning.kernel_text import configured
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.runtime.kernels.library import SEAL, sealed

HANGS = b"this one hangs"


def build(asked: tuple[Task, Point | None]) -> bytes:
    """What the sketch of the point says: a compiler that crashes, or takes for ever; a kernel that computes
    something else, writes beyond its memory, or takes for ever.
    """
    task, point = asked
    match point.sketch if point else "":
        case "compiler crashes":
            os.abort()
        case "compiler hangs":
            time.sleep(1000)
        case "wrong":
            return builder.build((_changed(task, "0.000000e+00", "1.000000e+00"), point))
        case "segfaults":
            return builder.build((_changed(task, "48x48", "48000x48000"), point))
        case "hangs":
            library = builder.build(asked)
            return sealed(library[: -len(SEAL) - 32] + HANGS)
    return builder.build(asked)


def run(asked: Task | Measure) -> object:
    if isinstance(asked, Measure) and HANGS in asked.candidate.read_bytes():
        time.sleep(1000)
    return runner.run(asked)


def _changed(task: Task, old: str, new: str) -> Task:
    module = configured(task, None)
    text = module.operation.get_asm()
    assert old in text
    changed = ir.Module.parse(text.replace(old, new), module.context)
    return Task(changed.operation.get_asm(), task.target, task.threads)
