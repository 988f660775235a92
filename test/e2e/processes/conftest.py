"""Starting real ranks: each launch costs seconds, so a test groups many checks in one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_mlir import ir

from shardc.artefact.folder import write_artefact
from shardc.artefact.manifest import ManifestFields, build_manifest
from shardc.backends.torch.emit import emit_program
from shardc.dialects.context import new_context

HERE = Path(__file__).parent

Launch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def launch() -> Launch:
    """``launch(script, nproc, *arguments, **environment)`` runs a script of this folder under torchrun."""

    def run(
        script: str | Path, nproc: int, *arguments: object, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(nproc),
        ]
        return subprocess.run(
            [*command, str(HERE / script), *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return run


TWO_LAYER = HERE.parents[1] / "unit" / "backends" / "torch" / "two_layer.mlir"
F64 = torch.float64
LR = 1e-3


@pytest.fixture(scope="session")
def values() -> dict[str, torch.Tensor]:
    """Initial state of the two-layer net, and its batch."""
    generator = torch.Generator().manual_seed(3)
    shapes = {"up.weight": (6, 8), "down.weight": (8, 3), "x": (16, 6)}
    made = {name: torch.randn(shape, generator=generator, dtype=F64) for name, shape in shapes.items()}
    return {**made, "steps": torch.zeros((), dtype=F64)}


@pytest.fixture(scope="session")
def artefact(tmp_path_factory: pytest.TempPathFactory, values: dict[str, torch.Tensor]) -> Path:
    """The two-layer net's artefact, for 4 ranks. Not to be changed: copy it first."""
    folder = tmp_path_factory.mktemp("artefact") / "out"
    fields = ManifestFields(
        model="0" * 64,
        batch={"mapping": {"x": {"leaf": "x"}, "scale": {"constant": 2}}},
        hyperparameters=[
            {"name": "group0.lr", "group": 0, "key": "lr", "index": None, "first_step": None, "value": LR}
        ],
        baked=[{"group": 0, "key": "momentum", "value": 0}],
        seed=11,
    )
    state = {name: values[name] for name in ("up.weight", "down.weight", "steps")}
    with new_context():
        module = ir.Module.parse(TWO_LAYER.read_text())
        constants = {"constant0": torch.ones((), dtype=F64)}
        write_artefact(
            folder,
            {"3-rank": str(module)},
            emit_program(module),
            build_manifest(module, fields, ""),
            constants=constants,
            state=state,
            batches=[{"x": values["x"]}],
        )
    return folder


def reference(
    values: dict[str, torch.Tensor], lrs: list[float]
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and final parameters of the same net trained on one device, a learning rate for each step."""
    up, down = (values[n].clone().requires_grad_() for n in ("up.weight", "down.weight"))
    losses = []
    for lr in lrs:
        loss = ((torch.relu(values["x"] @ up) @ down) ** 2).sum()
        losses.append(loss.item())
        for parameter, gradient in zip((up, down), torch.autograd.grad(loss, (up, down)), strict=True):
            parameter.data -= lr * gradient
    return losses, {"up.weight": up.detach(), "down.weight": down.detach()}


@pytest.fixture
def trained(
    values: dict[str, torch.Tensor],
) -> Callable[[list[float]], tuple[list[float], dict[str, torch.Tensor]]]:
    """``trained(lrs)``: the losses and parameters that a run must reach."""
    return lambda lrs: reference(values, lrs)
