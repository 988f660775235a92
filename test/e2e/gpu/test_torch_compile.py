"""Graphs of ``torch.compile`` on a GPU that is not here: values in Triton's interpreter, compiling on fake
tensors.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.cpu.target import CpuTarget
from shardc.backends.registry import target_for
from shardc.backends.triton.aot.compile import check_triton
from shardc.backends.triton.target import device_gpu
from shardc.cost.machine import GPUS
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.diagnostics.triton import DriverTooOld
from shardc.dynamo import compile_graph as graph_compiler
from shardc.dynamo import program as graph_program
from shardc.dynamo.settings import Settings
from shardc.runtime.kernels import triton_kernels

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")

from shardc.backends.triton.aot import device

from .conftest import Properties

CASES = Path(__file__).with_name("cases")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(p.stem for p in CASES.glob("*.py")))
def test_values_are_those_of_eager(name: str, tmp_path: Path) -> None:
    """Forward, backward and optimizer as kernels, in the interpreter; once compiled, once from the caches."""
    (tmp_path / "case.py").write_text((CASES / f"{name}.py").read_text())
    expected = _case(tmp_path / "case.py").run(lambda f, **_: f)
    own = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "SHARDC_CACHE_DIR": str(tmp_path / "cache")}
    own["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "inductor")
    script = Path(__file__).with_name("interpreted_backend.py")
    for _ in range(2):
        subprocess.run([sys.executable, str(script), str(tmp_path)], env=os.environ | own, check=True)
        found, bound = torch.load(tmp_path / "results.pt")
        assert bound, "no kernel was made"
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert list((tmp_path / "cache").glob("triton-*.tar"))


def _case(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("case", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_graph_of_cuda_tensors_becomes_kernels_of_its_gpu(
    h200: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On fake tensors: the program, modules and binaries are there; a second compile finds them."""
    with FakeTensorMode():
        x, w = torch.empty(33, 65, device="cuda"), torch.empty(65, device="cuda")
    graph = make_fx(lambda x, w: [torch.softmax(x * w, -1), x.sum(0)], tracing_mode="fake")(x, w)
    texts, libraries = [], []

    def load(text: str, library: Any, strict: bool) -> Any:
        texts.append(text)
        libraries.append(library)
        return graph_program_load(text, library, strict)

    graph_program_load = graph_program.load
    monkeypatch.setattr(graph_program, "load", load)
    made = [graph_compiler.compile_graph(Settings(), None, "forward", graph) for _ in range(2)]
    assert made[0].device == torch.device("cuda", 0) and made[0].key == made[1].key is not None
    assert texts[0] == texts[1] and 'kernel("' in texts[0] and "empty(" not in texts[0]
    folder = libraries[0].folder
    assert len(list(folder.glob("*.py"))) == texts[0].count('kernel("')
    assert list((folder / "cache").rglob("*.cubin"))
    assert device_gpu(torch.device("cuda", 0)).l2_bytes == 60 << 20


@pytest.mark.slow
def test_models_of_costs_choose_who_computes_a_matmul(h200: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cuBLAS would give memory to be read again is part of a kernel, unless it is not to be."""
    with FakeTensorMode():
        x, w = (torch.empty(n, 512, device="cuda", dtype=torch.bfloat16) for n in (8192, 512))
    graph = make_fx(lambda x, w: [torch.nn.functional.silu(x @ w) * x], tracing_mode="fake")(x, w)
    texts = []
    monkeypatch.setattr(
        graph_program, "load", lambda text, library, strict: texts.append(text) or (lambda *given: None)
    )
    for settings in (Settings(), Settings.of({"matmuls": "extern"})):
        graph_compiler.compile_graph(settings, None, "forward", graph)
    assert ["aten.mm" in text for text in texts] == [False, True]


def test_a_kernel_that_no_configuration_fits_is_a_call_and_said(
    h200: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum over the warps of a program needs shared memory; without it ATen has the op."""
    properties = Properties(shared_memory_per_block_optin=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    with FakeTensorMode():
        x = torch.empty(64, 4096, device="cuda")
    graph = make_fx(lambda x: [torch.softmax(x * 2, -1)], tracing_mode="fake")(x)
    texts: list[str] = []
    monkeypatch.setattr(
        graph_program, "load", lambda text, library, strict: texts.append(text) or (lambda *given: None)
    )
    with pytest.warns(ShardcFallbackWarning, match=r"(?s)_softmax.*TooMuchSharedMemory.*has 4"):
        made = graph_compiler.compile_graph(Settings(), None, "forward", graph)
    assert "kernel(" not in texts[0] and "torch.ops.aten._softmax" in texts[0]
    assert made.key is None, "another process is to be told, too"


@pytest.mark.parametrize(
    "found, arch, shared",
    [((8, 0), 80, 166912), ((8, 9), 89, 101376), ((10, 0), 100, 232448), ((12, 0), 120, 101376)],
)
def test_targets_of_devices(
    h200: None, monkeypatch: pytest.MonkeyPatch, found: tuple[int, int], arch: int, shared: int
) -> None:
    properties = Properties(major=found[0], minor=found[1], shared_memory_per_block_optin=shared)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    target = device.device_target(torch.device("cuda"))
    assert (target.arch, target.shared_bytes, target.units, target.backend) == (arch, shared, 132, "cuda")


def test_a_target_of_rocm(h200: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.3")
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: Properties(gcnArchName="gfx942:sramecc+:xnack-")
    )
    assert device.device_target(torch.device("cuda")).backend == "hip"


def _warning() -> str:
    with pytest.warns(ShardcFallbackWarning) as said:
        assert device_gpu(torch.device("cuda")) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert target_for(torch.device("cuda")) is None
    return str(said[0].message)


def test_an_unknown_gpu_is_named(h200: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties(major=7, minor=5))
    assert "there is no target 'sm_75'; known ones are sm_80, sm_90" in _warning()


def test_a_driver_that_is_too_old_is_named(h200: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_kernels, "driver_version", lambda: 11080)
    assert "the GPU's driver is for CUDA 11.8; kernels that Triton makes here need one for 12" in _warning()
    with pytest.raises(DriverTooOld):
        device.check_driver(11080)
    device.check_driver(12000)


@pytest.mark.parametrize(
    "found, message", [("3.5.1", "Triton 3.5.1 is too old"), (None, "need Triton, which cannot")]
)
def test_triton_missing_or_too_old_is_named(
    h200: None, monkeypatch: pytest.MonkeyPatch, found: str | None, message: str
) -> None:
    from shardc.backends.triton.aot import compile as triton_compile

    def version(name: str) -> str:
        if found is None:
            raise triton_compile.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(triton_compile, "version", version)
    check_triton.cache_clear()
    try:
        assert message in _warning()
    finally:
        check_triton.cache_clear()


def test_the_cpu_has_kernels_of_its_own() -> None:
    assert isinstance(target_for(torch.device("cpu")), CpuTarget)
    assert target_for(torch.device("meta")) is None
    assert "sm_90" in GPUS
