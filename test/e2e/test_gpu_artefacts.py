"""Artefacts for a GPU that is not here: their kernels are compiled,
and the program runs in Triton's interpreter on the CPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import shardc
from shardc.diagnostics.kernels import UnknownTarget
from shardc.runtime import RuntimeFailure, TrainStep
from shardc.runtime.kernels import triton_kernels

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")

RUN = """
import sys
import torch
from shardc.backends.triton.interpreter.interpret_worker import patch
from shardc.runtime import TrainStep

step = TrainStep.load(sys.argv[1], device="cpu")
batch = torch.load(sys.argv[2])
with patch():
    losses = [step(batch) for _ in range(3)]
torch.save(losses, sys.argv[3])
"""


class Net(nn.Module):
    """An embedding, a norm, a gated layer and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(29, 24)
        self.norm = nn.LayerNorm(24)
        self.up, self.gate, self.down = nn.Linear(24, 40), nn.Linear(24, 40), nn.Linear(40, 29)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.table(ids))
        logits = self.down(self.up(x) * nn.functional.silu(self.gate(x)))
        return nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 29), ids[:, 1:].reshape(-1))


def _training() -> tuple[nn.Module, torch.optim.Optimizer, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model, batch = Net(), {"ids": torch.randint(29, (3, 13))}
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), batch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artefact for an H100."""
    model, optimizer, batch = _training()
    made = tmp_path_factory.mktemp("artefact") / "out"
    shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, target="sm_90").save(made)
    return made


@pytest.mark.slow
def test_it_trains_as_eager_does(folder: Path, tmp_path: Path) -> None:
    """Kernels of every part of the step, their sources and binaries; three steps equal eager training."""
    model, optimizer, batch = _training()
    assert len(list((folder / "kernels").glob("*.py"))) > 4
    assert len(list((folder / "kernels" / "cache").rglob("*.cubin"))) > 4
    torch.save(batch, tmp_path / "batch.pt")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [
        sys.executable,
        "-c",
        RUN,
        str(folder),
        str(tmp_path / "batch.pt"),
        str(tmp_path / "losses.pt"),
    ]
    subprocess.run(command, env=environment, check=True)
    expected = []
    for _ in range(3):
        loss = model(**batch)
        expected.append(loss.detach())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    losses = torch.load(tmp_path / "losses.pt")
    torch.testing.assert_close(
        torch.stack([loss.reshape(()) for loss in losses]), torch.stack(expected), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_it_is_refused_where_its_gpu_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with pytest.raises(RuntimeFailure, match=r"kernels for sm_90, and rank 0 is on cpu"):
        TrainStep.load(folder, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "message"),
    [("3.5.1", "Triton 3.5.1 is too old for these kernels"), (None, "Triton does not import")],
)
def test_triton_missing_or_too_old_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, message: str
) -> None:
    if version is None:
        monkeypatch.setitem(sys.modules, "triton", None)
    else:
        monkeypatch.setattr("triton.__version__", version)
    with pytest.raises(RuntimeFailure, match=message) as raised:
        TrainStep.load(folder, device="cpu")
    assert "pip install 'triton>=3.6'" in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(("found", "is_refused"), [(11080, True), (12000, False)])
def test_a_driver_that_is_too_old_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: int, is_refused: bool
) -> None:
    """What a driver for CUDA 12 may load is refused for no other reason than that there is no GPU."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(triton_kernels, "driver_version", lambda: found)
    message = (
        "the GPU's driver is for CUDA 11.8; these kernels need one for 12"
        if is_refused
        else "rank 0 is on cpu"
    )
    with pytest.raises(RuntimeFailure, match=message):
        TrainStep.load(folder, device="cpu")


@pytest.mark.slow
def test_a_lost_kernel_is_named(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "out")
    lost = sorted((tmp_path / "out" / "kernels").glob("*.py"))[0]
    lost.unlink()
    with pytest.raises(RuntimeFailure, match=f"kernels/{lost.name} is missing"):
        TrainStep.load(tmp_path / "out", device="cpu")


def test_an_unknown_target_is_refused() -> None:
    model, optimizer, batch = _training()
    with pytest.raises(UnknownTarget, match="known ones are sm_80, sm_90, sm_100, gfx942"):
        shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, target="sm_75")
