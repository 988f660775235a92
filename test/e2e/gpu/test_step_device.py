"""The target of a step's kernels, and the device of each rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import shardc
from shardc.commands.tune import jobs_of
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.diagnostics.kernels import UnknownTarget
from shardc.diagnostics.passes.fusion import FusionRefused
from shardc.runtime import RuntimeFailure, TrainStep
from shardc.runtime.comm.connect import connect
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.program import device_of
from shardc.step.compile_step import CompiledStep
from shardc.step.fuse_step import step_target

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")

ALONE = Mesh((("data", 1),))


@pytest.fixture
def gpus(h200: None, monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Two H200. Gives the devices that were made current; one needs a number for that, as it does
    in torch.
    """
    chosen: list[torch.device] = []

    def set_device(device: Any) -> None:
        chosen.append(torch.device("cuda", torch.cuda._utils._get_device_index(device)))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", set_device)
    return chosen


def _step(**options: Any) -> CompiledStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
    batch = (torch.randn(4, 8),)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return shardc.compile_step(
        model,
        optimizer,
        batch,
        mesh={"data": 1},
        loss=lambda out, _: out.square().mean(),
        matmuls="extern",
        **options,
    )


@pytest.mark.parametrize("asked, own", [(None, "cuda:1"), ("cuda", "cuda:1"), ("cuda:0", "cuda:0")])
def test_each_rank_has_a_gpu_of_its_own(
    gpus: list[torch.device], monkeypatch: pytest.MonkeyPatch, asked: str | None, own: str
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert connect(ALONE, asked).device == torch.device(own)
    assert gpus == [torch.device(own)]


def test_a_gpu_that_is_not_there_is_named(gpus: list[torch.device], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeFailure, match=r"no device 'cuda:2': torch \S+ sees 2 GPUs here"):
        connect(ALONE, "cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        RuntimeFailure, match=r"(?s)no device 'cuda': torch \S+ sees no GPU here.*--target cpu"
    ):
        connect(ALONE, "cuda")


@pytest.mark.slow
def test_a_step_has_kernels_for_the_gpu_that_is_here(gpus: list[torch.device], tmp_path: Path) -> None:
    """Its binaries are for that GPU; and nothing is a call of ATen without a word."""
    step = _step()
    assert step.compiled.target is not None and step.compiled.target.name == "sm_90"
    step.save(tmp_path / "out")
    assert list((tmp_path / "out" / "kernels" / "cache").rglob("*.cubin"))


def test_a_step_for_the_cpu_runs_there(gpus: list[torch.device], tmp_path: Path) -> None:
    """Beside GPUs, too: when it is compiled, and when its artefact is loaded."""
    step = _step(target="cpu")
    assert step.compiled.library is not None and step.compiled.target.name == "cpu"
    step.save(tmp_path / "out")
    loaded = TrainStep.load(tmp_path / "out")
    batch = (torch.randn(4, 8),)
    assert step.device == loaded.device == torch.device("cpu") and not gpus
    assert torch.equal(step(batch), loaded(batch))


def test_kernels_for_gpus_run_on_the_cpu_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = {"kernels": [{"name": "k"}], "target": "sm_90"}
    assert device_of(manifest) is None and device_of({"kernels": [], "target": ""}) is None
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert device_of(manifest) == "cpu"


def test_a_gpu_without_kernels_is_said(gpus: list[torch.device], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step for a GPU that Triton has no code for runs through ATen, and a warning says so; force is
    refused.
    """
    properties = torch.cuda.get_device_properties(0)
    properties.major = 7
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    with pytest.warns(ShardcFallbackWarning, match="there is no target 'sm_70'"):
        assert step_target() is None
    with pytest.raises(FusionRefused, match="no kernels for this machine's GPU"):
        _step(force_fusion=["aten.add.Tensor+gelu"])


def test_an_unknown_target_names_the_cpu_too() -> None:
    with pytest.raises(UnknownTarget, match="sm_80, sm_90, sm_100, gfx942, cpu"):
        _step(target="sm_35")


@pytest.mark.slow
def test_kernels_for_a_gpu_without_an_entry_are_not_tuned_for_the_cpu(
    gpus: list[torch.device], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    properties = torch.cuda.get_device_properties(0)
    properties.minor = 9
    properties.major = 8
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    _step().save(tmp_path / "out")
    with pytest.raises(UnknownTarget, match="there is no target 'sm_89'"):
        jobs_of(tmp_path / "out")
