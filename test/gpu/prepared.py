"""Reader of the files of ``prepare.py`` on a GPU machine, with torch and triton: programs and artefacts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(Path(__file__).parent)]

# Importing these defines the ops that cases call.
from shardc.runtime.kernels.triton_kernels import Modules, interprets  # noqa: E402
from shardc.runtime.operators import (  # noqa: E402
    attention,  # noqa: F401
    linear_cross_entropy,  # noqa: F401
    random,  # noqa: F401
    sampling,  # noqa: F401
)

if interprets():
    from shardc.backends.triton.interpreter.interpret_worker import patch

    PATCHED = patch()
    PATCHED.__enter__()  # what Triton's interpreter lacks, as long as this process runs
    torch.set_num_threads(1)

FOLDER = "SHARDC_GPU_FOLDER"
"""The variable that names the folder."""


def device() -> torch.device:
    """Where prepared programs run: the GPU, or the CPU in Triton's interpreter."""
    return torch.device("cpu" if interprets() else "cuda")


def folder() -> Path:
    return Path(os.environ.get(FOLDER, ROOT / "out" / "gpu"))


def facts() -> dict[str, Any]:
    """What the preparing machine said: target, versions, seconds that compilation took."""
    return json.loads((folder() / "prepared.json").read_text())


def program(path: Path) -> tuple[Callable[[list[torch.Tensor]], tuple[torch.Tensor, ...]], Modules]:
    """The program of a case as a function of a list of tensors, and its kernels."""
    modules = Modules(path)
    names: dict[str, Any] = {"kernel": modules.kernel, "kernels": modules.batch, "empty": modules.empty}
    exec(compile((path / "program.py").read_text(), str(path / "program.py"), "exec"), names)
    rank = SimpleNamespace(device=device())
    return lambda inputs: names["graph"](rank, list(inputs)), modules
