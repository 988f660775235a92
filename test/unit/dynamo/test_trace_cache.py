"""Traces kept on disk: a second process (in most tests, a reset) traces and compiles nothing,
and no other graph gets its program.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.precompile_context import PrecompileContext
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from shardc.driver import dynamo, graph_compiler, trace_cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The two caches: ours, and PyTorch's below ``torch``. Frames are not kept: they would be found before traces."""
    monkeypatch.setenv("SHARDC_KEEP_FRAMES", "0")
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "shardc"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    return tmp_path


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The phases of the graphs that were handed to the compiler."""
    found: list[str] = []
    real = graph_compiler.compile_graph

    def record(settings: Any, wishes: Any, phase: str, *graph: Any) -> Any:
        found.append(phase)
        return real(settings, wishes, phase, *graph)

    monkeypatch.setattr(graph_compiler, "compile_graph", record)
    return found


def step(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> list[torch.Tensor]:
    """Result and gradients of a function compiled as a new process would: Dynamo has forgotten everything."""
    torch._dynamo.reset()
    counters.clear()
    return eager(torch.compile(function, backend="shardc", options=options or None, dynamic=False), *inputs)


def eager(function: Callable[..., Any], *inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    torch.manual_seed(3)
    result = function(*leaves)
    result.abs().sum().backward()
    return [result.detach(), *(x.grad for x in leaves if x.grad is not None)]


def looked_up() -> dict[str, int]:
    """What became of the graphs since the last :func:`step` began."""
    names = {"autograd_cache_hit": "hit", "autograd_cache_miss": "miss", "autograd_cache_saved": "saved"}
    return {
        short: counters["aot_autograd"][name]
        for name, short in names.items()
        if counters["aot_autograd"][name]
    }


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected) and all(
        torch.equal(a, b) for a, b in zip(found, expected, strict=True)
    )


def gelu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return nn.functional.gelu(x * w) + 1


@pytest.fixture
def program(folder: Path) -> str:
    """A process that trains a step, saves result and gradients where it is told,
    and says what it found in the caches.
    """
    (folder / "kept_model.py").write_text(
        "import torch\n\n\ndef model(x, w):\n    return torch.softmax(torch.tanh(x @ w) * torch.tensor([1.0, 2.0]), 1)\n"
    )
    torch.save((torch.randn(5, 3), torch.randn(3, 2)), folder / "inputs.pt")
    return f"""
import sys, torch
sys.path.insert(0, {str(folder)!r})
from kept_model import model
x, w = (t.requires_grad_() for t in torch.load({str(folder / "inputs.pt")!r}))
result = torch.compile(model, backend="shardc", dynamic=False)(x, w)
result.abs().sum().backward()
torch.save([result.detach(), x.grad, w.grad], sys.argv[1])
compilers = {{"torch_mlir", "torch._inductor.scheduler", "torch._inductor.ir", "shardc.passes.fuse.kern_fuse"}}
print(torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"], bool(compilers & set(sys.modules)))
"""


def test_a_second_process_traces_nothing_and_loads_no_compiler(folder: Path, program: str) -> None:
    """And its numbers are those of the first."""
    results = []
    for expected in (["0", "True"], ["1", "False"]):
        command = [sys.executable, "-c", program, str(folder / "found.pt")]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert run.stdout.split() == expected, run.stderr
        results.append(torch.load(folder / "found.pt"))
    assert_equal(results[1], results[0])


def test_two_processes_at_once(folder: Path, program: str) -> None:
    """Both compile, into one folder; a third finds what they left."""
    commands = [[sys.executable, "-c", program, str(folder / f"found{n}.pt")] for n in range(3)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for command in commands[:2]]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0 and "Warning" not in errors, errors
    last = subprocess.run(commands[2], capture_output=True, text=True, check=True)
    assert last.stdout.split() == ["1", "False"], last.stderr
    first, *others = (torch.load(folder / f"found{n}.pt") for n in range(3))
    for found in others:
        assert_equal(found, first)
    assert not [path for path in folder.rglob("*") if path.suffix in (".part", ".lock")]


def test_forward_and_backward_are_kept(phases: list[str]) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)
    first = step(gelu, x, w)
    assert looked_up() == {"miss": 1, "saved": 1} and phases == ["forward", "backward"]
    second = step(gelu, x, w)
    assert looked_up() == {"hit": 1} and len(phases) == 2
    assert_equal(second, first)
    for ours, theirs in zip(second, eager(gelu, x, w), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_graph_without_gradients_is_kept(phases: list[str]) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)
    for expected in ({"miss": 1, "saved": 1}, {"hit": 1}):
        torch._dynamo.reset()
        counters.clear()
        torch.testing.assert_close(torch.compile(gelu, backend="shardc", dynamic=False)(x, w), gelu(x, w))
        assert looked_up() == expected
    assert phases == ["forward"]


def test_what_a_program_depends_on_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)

    def gelu_elsewhere(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x * w) + 1

    cases = [
        (gelu, (x, w), {}), (gelu_elsewhere, (x, w), {}), (gelu, (x[:3], w), {}), (gelu, (x.double(), w.double()), {}),
        (gelu, (x.T.contiguous().T, w), {}), (gelu, (x, x), {}), (gelu, (x, x.clone()), {}),
        (gelu, (x, w), {"fuse": False}), (gelu, (x, w), {"numerics": "eager"}), (gelu, (x, w), {"random": "torch"}),
    ]  # fmt: skip
    for number, (function, inputs, options) in enumerate(cases):
        found = step(function, *inputs, **options)
        assert looked_up() == {"miss": 1, "saved": 1}, number
        for ours, theirs in zip(found, eager(function, *inputs), strict=True):
            torch.testing.assert_close(ours, theirs)
    monkeypatch.setattr(trace_cache, "versions", lambda: ("the next version",))
    step(gelu, x, w)
    assert looked_up() == {"miss": 1, "saved": 1}


def test_random_numbers_are_those_of_the_first_process() -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x * 2, 0.5) + torch.rand_like(x)

    first = step(dropped, torch.ones(9, 5))
    second = step(dropped, torch.ones(9, 5))
    assert looked_up() == {"hit": 1}
    assert_equal(second, first)
    assert torch.equal(second[0] > 2, second[1] > 0), "the backward has another mask"


def test_buffers_are_written() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
        step(model, torch.randn(8, 4))
        states.append([model[1].running_mean, model[1].num_batches_tracked, model[0].weight.grad])
    assert looked_up() == {"hit": 1} and states[0][1] == 1 and states[0][0].abs().sum() > 0
    assert_equal(states[1], states[0])


def test_complex_numbers() -> None:
    def spectrum(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).conj() * 2

    first = step(spectrum, torch.randn(8))
    assert_equal(step(spectrum, torch.randn(8).copy_(first[0].real * 0)), eager(spectrum, torch.zeros(8)))
    assert looked_up() == {"hit": 1}


def test_a_program_that_is_gone_is_made_again(folder: Path, phases: list[str]) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)
    first = step(gelu, x, w)
    for path in (folder / "shardc").glob("graph-*"):
        path.unlink()
    assert_equal(step(gelu, x, w), first)
    assert looked_up().get("hit", 0) == 0 and len(phases) == 4
    assert_equal(step(gelu, x, w), first)
    assert looked_up() == {"hit": 1} and len(phases) == 4


def test_a_damaged_entry_is_none(folder: Path, phases: list[str]) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)
    first = step(gelu, x, w)
    for path in (p for p in (folder / "torch" / "aotautograd").rglob("*") if p.is_file()):
        path.write_bytes(path.read_bytes()[:-20])
    assert_equal(step(gelu, x, w), first)
    assert looked_up() == {"miss": 1, "saved": 1} and len(phases) == 4


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.parts[0], x, use_reentrant=False)


@torch.library.custom_op("shardc_test::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda context, gradient: gradient * 2)


@pytest.mark.filterwarnings("ignore:shardc runs a graph through ATen")
@pytest.mark.parametrize(
    "function, options",
    [
        (lambda x: doubled(x) + 1, {}),
        (Scaled(), {}),
        (lambda x: x.exp() + 1, {"forbid_fusion": ["aten.exp+aten.add"]}),
    ],
    ids=["an operator of a user's", "a higher-order operator", "wishes that are to be reported"],
)  # fmt: skip
def test_what_is_traced_each_time(function: Any, options: dict[str, Any], phases: list[str]) -> None:
    for runs in (1, 2):
        step(function, torch.ones(4, 4), **options)
        assert looked_up() == {} and phases == ["forward", "backward"] * runs


def test_symbolic_sizes_are_traced_each_time() -> None:
    for n in (3, 5, 7):
        torch._dynamo.reset()
        counters.clear()
        torch.compile(gelu, backend="shardc", dynamic=True)(torch.randn(n, 8), torch.randn(8))
        assert looked_up() == {}


def test_the_cache_can_be_turned_off(phases: list[str]) -> None:
    """And then a backward is compiled when it is called, as without it."""
    with torch._functorch.config.patch(enable_autograd_cache=False):
        torch._dynamo.reset()
        torch.compile(gelu, backend="shardc", dynamic=False)(
            torch.randn(6, 8).requires_grad_(), torch.randn(8)
        )
    assert looked_up() == {} and phases == ["forward"]


def test_packages_of_dynamo_have_no_part_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found without regard to backend and options."""
    monkeypatch.setattr(PrecompileContext, "_dynamo_cache_entries", {})
    with torch._dynamo.config.patch(caching_precompile=True):
        step(gelu, torch.randn(6, 8), torch.randn(8))
    assert looked_up() == {} and not PrecompileContext._backend_artifacts_by_key


def test_what_fell_back_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("in a pass")

    monkeypatch.setattr(graph_compiler, "run", broken)
    for _ in range(2):
        dynamo._said.clear()
        with pytest.warns(match="in a pass"):
            step(gelu, torch.randn(6, 8), torch.randn(8))
        assert looked_up() == {"miss": 1}
