"""Choice of a matmul's implementation by measurement on a simulated GPU: clock, benchmark, record, report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

import shardc

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")

import shardc.runtime.operators.attention
from shardc.backends.benchmark import benchmark
from shardc.backends.torch.emit_graph import emit_graph
from shardc.backends.triton import clock as device_clock
from shardc.backends.triton import target as triton_target
from shardc.backends.triton.aot import local_gpu
from shardc.backends.triton.clock import DeviceClock
from shardc.backends.triton.target import TritonTarget
from shardc.commands.explain_fusion import explain_path
from shardc.compiler.fusion_record import FusionRecord
from shardc.compiler.measured_regions import MeasuredRegions
from shardc.compiler.modelled_regions import ModelledRegions
from shardc.cost.machine import GPUS, Gpu
from shardc.diagnostics.triton import TooMuchSharedMemory
from shardc.dialects.context import new_context
from shardc.dynamo.program import load
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.grouping.capabilities import ALL
from shardc.passes.fuse.grouping.explain import FusionReport, explain_fusion
from shardc.passes.fuse.grouping.region import EveryRegion, Verdict
from shardc.passes.manager.mlir_errors import Source, parse_module

from .test_torch_compile import _case

H100 = GPUS["sm_90"]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is being used for nothing else, and no choice of another test."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    fake = SimpleNamespace(is_current_stream_capturing=lambda: False)
    monkeypatch.setattr(triton_target, "cuda", fake)


class Pretended:
    """A clock: what is called says how long it took."""

    def __init__(self, name: str = "a GPU") -> None:
        self.name = name
        self.calls: list[str] = []

    def seconds(self, call: Callable[[], Any]) -> float:
        name, seconds = call()
        self.calls.append(name)
        return seconds

    def surroundings(self) -> str:
        return self.name


def measured(gpu: Gpu, clock: Any) -> MeasuredRegions:
    target = TritonTarget(gpu)
    return MeasuredRegions(target, CPU, model=ModelledRegions(target), clock=clock)


def gated(x: Tensor, w: Tensor) -> list[Tensor]:
    return [torch.nn.functional.silu(x @ w) * x]


def explained(
    monkeypatch: pytest.MonkeyPatch,
    clock: Pretended,
    times: dict[str, float | Exception],
    target: Gpu = H100,
) -> FusionReport:
    def built(self: MeasuredRegions, region: ir.Module, name: str) -> Callable[[], Any]:
        found = times[name]
        if isinstance(found, Exception):
            raise found
        return lambda: (name, found)

    monkeypatch.setattr(MeasuredRegions, "_built", built)
    given = [torch.empty(512, 512, dtype=torch.bfloat16, device="meta") for _ in range(2)]
    module = import_graph(make_fx(gated, tracing_mode="fake")(*given), "forward").module
    choose = measured(target, clock)
    return explain_fusion(module, matmuls=EveryRegion(choose))


@pytest.mark.parametrize(
    "calls_us, kernels_us, generated", [(20, 10, True), (10, 20, False), (10, 9.9, False)]
)
def test_the_faster_program_is_taken(
    monkeypatch: pytest.MonkeyPatch, calls_us: float, kernels_us: float, generated: bool
) -> None:
    times = {"calls": calls_us * 1e-6, "kernels": kernels_us * 1e-6}
    clock = Pretended()
    ((_, verdict),) = explained(monkeypatch, clock, times).choices
    assert verdict.generated == generated
    measured = (
        f"measured: {calls_us:,.1f} us as calls, {kernels_us:,.1f} us as kernels (estimated for sm_90: "
    )
    assert verdict.why.startswith(measured)
    assert clock.calls[:4] == ["calls", "kernels", "calls", "kernels"]  # in turns
    assert len(clock.calls) == 2 * benchmark.ROUNDS[1]


def test_a_choice_is_remembered_for_this_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"calls": 2e-5, "kernels": 1e-5}
    first, again, other = Pretended(), Pretended(), Pretended("another GPU")
    found = [explained(monkeypatch, clock, times).choices[0][1] for clock in (first, again, other)]
    assert found[0] == found[1] == found[2]
    assert first.calls and not again.calls and other.calls


@pytest.mark.parametrize(
    "times, why",
    [
        ({"calls": torch.OutOfMemoryError("no room"), "kernels": 1e-5}, "there is too little memory"),
        ({"calls": RuntimeError("no"), "kernels": 1e-5}, "the program of calls does not run by itself"),
    ],
)
def test_where_nothing_can_be_measured_the_model_decides(
    monkeypatch: pytest.MonkeyPatch, times: dict[str, Any], why: str
) -> None:
    ((_, verdict),) = explained(monkeypatch, Pretended(), times).choices
    assert verdict.why.startswith("estimated for sm_90: ") and verdict.why.endswith(f"; not measured: {why}")


def test_memory_that_was_short_once_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    explained(monkeypatch, Pretended(), {"calls": torch.OutOfMemoryError("no room"), "kernels": 1e-5})
    ((_, verdict),) = explained(monkeypatch, Pretended(), {"calls": 1e-5, "kernels": 2e-5}).choices
    assert verdict.why.startswith("measured: ")


class Timed:
    """A program that is not run: what it gives, and what it takes."""

    def __init__(self, seconds: float, results: list[Tensor]) -> None:
        self.seconds, self.results = seconds, results

    def __call__(self) -> list[Tensor]:
        return self.results


class ByProgram(Pretended):
    def seconds(self, call: Timed) -> float:
        return call.seconds


def attend(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    return [torch.ops.shardc.attention(q, k, v, None, True, 0.25)[0]]


@pytest.mark.parametrize(
    "seconds, wrong, winner, chosen",
    [
        ((4.0, 1.0, 2.0, 3.0), "", "cudnn", ".cudnn"),
        ((4.0, 1.0, 2.0, 3.0), "cudnn", "efficient", ".efficient"),
        ((1.0, 1.0, 2.0, 3.0), "", "calls", ".default"),
        ((4.0, 3.0, 2.0, 1.0), "", "kernels", None),
    ],
)
def test_libraries_of_attention_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], wrong: str, winner: str, chosen: str | None
) -> None:
    """The fastest is called, if it gives what the others give."""
    times = dict(zip(("calls", "cudnn", "efficient", "kernels"), seconds, strict=True))

    def built(self: MeasuredRegions, region: ir.Module, name: str) -> Timed:
        return Timed(1e-6 * times[name], [torch.full((4,), 2.0 if name == wrong else 1.0)])

    monkeypatch.setattr(MeasuredRegions, "_built", built)
    given = [torch.empty(2, 4, 256, 64, dtype=torch.bfloat16, device="meta") for _ in range(3)]
    imported = import_graph(make_fx(attend, tracing_mode="fake")(*given), "forward")
    choose = measured(H100, ByProgram())
    ((_, verdict),) = explain_fusion(imported.module, matmuls=EveryRegion(choose)).choices
    said = [f"{times[name]:.1f} us as {name}" for name in times if name != wrong]
    assert all(text in verdict.why for text in said) and verdict.generated == (winner == "kernels")
    text = emit_graph(imported.module, imported.outputs)
    if chosen is None:
        assert "shardc.attention" not in text
        return
    assert f"= torch.ops.shardc.attention{chosen}\n" in text
    operands = [torch.randn(2, 4, 256, 64).bfloat16() for _ in range(3)]
    (got,) = load(text)(SimpleNamespace(device=CPU), list(operands))
    assert torch.equal(got, attend(*operands)[0])


def test_an_attention_of_amd_has_no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(
        MeasuredRegions,
        "_built",
        lambda self, region, name: names.append(name) or Timed(1e-6, [torch.ones(1)]),
    )
    given = [torch.empty(2, 4, 256, 64, dtype=torch.bfloat16, device="meta") for _ in range(3)]
    module = import_graph(make_fx(attend, tracing_mode="fake")(*given), "forward").module
    target = GPUS["gfx942"]
    explain_fusion(
        module,
        matmuls=EveryRegion(measured(target, ByProgram())),
    )
    assert names == ["calls", "kernels"]


def test_kernels_that_do_not_run_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, verdict),) = explained(
        monkeypatch, Pretended(), {"calls": 1e-5, "kernels": RuntimeError("no")}
    ).choices
    assert not verdict.generated and "it does not run as kernels" in verdict.why


def test_nothing_is_measured_during_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_target.cuda, "is_current_stream_capturing", lambda: True)
    clock = Pretended()
    ((_, verdict),) = explained(monkeypatch, clock, {"calls": 1e-5, "kernels": 2e-5}).choices
    assert verdict.why.endswith("a CUDA graph is being captured") and not clock.calls


def test_products_of_computed_sizes_are_not_measured() -> None:
    """Nobody knows how many rows each expert has when it is compiled: the model decides."""
    given = [
        torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((4096, 512), (64, 512, 512))
    ]
    given.append(torch.empty(64, dtype=torch.int32, device="meta"))
    graph = make_fx(lambda x, w, ends: [torch._grouped_mm(x, w, offs=ends)], tracing_mode="fake")(*given)
    target, clock = GPUS["sm_80"], Pretended()
    choose = measured(target, clock)
    module = import_graph(graph, "forward").module
    ((_, verdict),) = explain_fusion(module, matmuls=EveryRegion(choose), capabilities=ALL).choices
    assert verdict.generated and not clock.calls
    assert verdict.why.endswith("not measured: the sizes of its groups are known as it runs")


def test_what_has_no_kernel_is_a_call_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> Any:
        raise TooMuchSharedMemory(name="k", target="sm_90", needed_bytes=2, shared_bytes=1)

    monkeypatch.setattr(TritonTarget, "estimate", none)
    clock = Pretended()
    ((_, verdict),) = explained(monkeypatch, clock, {"calls": 1.0, "kernels": 1e-5}).choices
    assert not verdict.generated and not clock.calls


def test_the_clock_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is wiped, then the call stands between two events that are waited for; times are in seconds."""
    said: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            said.append("record")

        def synchronize(self) -> None:
            said.append("wait")

        def elapsed_time(self, last: Event) -> float:
            return 0.25  # ms

    fake = SimpleNamespace(Event=Event, get_device_name=lambda _: "H100")
    monkeypatch.setattr(device_clock, "cuda", fake)
    monkeypatch.setattr(device_clock, "WIPED_BYTES", 64)
    clock = DeviceClock(CPU)
    assert [clock.seconds(lambda: said.append("call")) for _ in range(2)] == [0.25e-3] * 2
    assert said == ["record", "call", "record", "wait"] * 2
    assert clock.surroundings().startswith("H100, driver ") and torch.__version__ in clock.surroundings()
    before = clock.surroundings()
    try:
        torch.set_float32_matmul_precision("high")
        assert clock.surroundings() != before
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("found, there", [("sm_90", True), ("sm_80", False), (None, False)])
def test_an_artefact_is_measured_where_its_gpu_is(
    monkeypatch: pytest.MonkeyPatch, found: str | None, there: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found is not None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(
        local_gpu, "device_gpu", lambda device: GPUS.get(found) if device.type == "cuda" else None
    )
    assert (TritonTarget(H100).local_device() == torch.device("cuda", 0)) is there


def test_an_artefact_keeps_what_was_measured() -> None:
    module = import_graph(
        make_fx(gated, tracing_mode="fake")(*[torch.empty(8, 8, device="meta")] * 2), "forward"
    ).module
    record = FusionRecord(tf32=True).with_verdicts(
        {"0.12": Verdict(True, 'measured: "x"'), "0.3": Verdict(False, "y")}
    )
    record.write(module)
    again = parse_module(Source("a", module.operation.get_asm(enable_debug_info=True)), new_context())
    assert FusionRecord.read(again) == record and dict(record.verdicts)["0.3"] == "y"


@pytest.mark.slow
def test_both_programs_run_in_the_interpreter(tmp_path: Path) -> None:
    """The benchmark for real but for its clock: both programs are built and called, on tensors that
    it makes.
    """
    (tmp_path / "case.py").write_text((Path(__file__).with_name("cases") / "sizes.py").read_text())
    own = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "SHARDC_CACHE_DIR": str(tmp_path / "cache")}
    own["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "inductor")
    script = Path(__file__).with_name("interpreted_backend.py")
    subprocess.run(
        [sys.executable, str(script), str(tmp_path), "--measured"], env=os.environ | own, check=True
    )
    found, bound = torch.load(tmp_path / "results.pt")
    expected = _case(tmp_path / "case.py").run(lambda f, **_: f)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    kept = [path.read_text(errors="replace") for path in (tmp_path / "cache").glob("choice-*")]
    assert bound and kept
    assert all('"calls"' in text and '"kernels"' in text for text in kept)


@pytest.mark.slow
def test_explain_says_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An artefact that is compiled where its GPU is; the report has the figures of then, also on another
    machine.
    """

    def built(self: MeasuredRegions, region: ir.Module, name: str) -> Callable[[], Any]:
        return lambda: (name, {"calls": 3e-5, "kernels": 1e-5}[name])

    monkeypatch.setattr(MeasuredRegions, "_built", built)
    monkeypatch.setattr(TritonTarget, "clock", lambda *_: Pretended())
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1), torch.nn.Flatten(0)
    )
    for here in (CPU, None):
        monkeypatch.setattr(TritonTarget, "local_device", lambda _, here=here: here)
        step = shardc.compile_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            {"input": torch.randn(16, 32)},
            loss=lambda out, batch: out.square().mean(),
            mesh={"data": 1},
            target="sm_90",
        )
        step.save(tmp_path / "out")
        monkeypatch.setattr(TritonTarget, "local_device", lambda _: None)
        said = explain_path(tmp_path / "out")
        assert ("measured: 30.0 us as calls, 10.0 us as kernels (estimated for sm_90" in said) == (
            here is not None
        )
        assert "estimated for sm_90" in said
