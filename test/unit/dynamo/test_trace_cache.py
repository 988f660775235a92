"""Traces kept on disk: a second process (in most tests, a reset) traces and compiles nothing,
and no other graph gets its program.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.precompile_context import PrecompileContext
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from shardc.cache import disk
from shardc.compiler.warn_once import warned
from shardc.dynamo import compile_graph as graph_compiler
from shardc.dynamo import compile_program, trace_cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The two caches: ours, and PyTorch's below ``torch``."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "shardc"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    return tmp_path


_became: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts what became of graphs that have a name."""
    load, keep = trace_cache.load, trace_cache.keep

    def count_load(name: str) -> Any:
        run = load(name)
        _became["miss" if run is None else "hit"] += 1
        return run

    def count_keep(name: str, run: Any) -> None:
        keep(name, run)
        _became["saved"] += disk.find(trace_cache._file(name)) is not None

    monkeypatch.setattr(trace_cache, "load", count_load)
    monkeypatch.setattr(trace_cache, "keep", count_keep)
    _became.clear()


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The phases of the graphs that were handed to the compiler."""
    found: list[str] = []
    real = graph_compiler.compile_graph

    def record(settings: Any, constraints: Any, phase: str, *graph: Any) -> Any:
        found.append(phase)
        return real(settings, constraints, phase, *graph)

    monkeypatch.setattr(graph_compiler, "compile_graph", record)
    return found


def step(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> list[torch.Tensor]:
    """Result and gradients of a function compiled as a new process would: Dynamo has forgotten everything."""
    torch._dynamo.reset()
    _became.clear()
    return eager(torch.compile(function, backend="shardc", options=options or None, dynamic=False), *inputs)


def eager(function: Callable[..., Any], *inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    torch.manual_seed(3)
    result = function(*leaves)
    result.abs().sum().backward()
    return [result.detach(), *(x.grad for x in leaves if x.grad is not None)]


def looked_up() -> dict[str, int]:
    """What became of the graphs since the last :func:`step` began."""
    return dict(_became)


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
        "import torch\n\n\ndef model(x, w):\n    return torch.softmax(torch.tanh(x @ w) * "
        "torch.tensor([1.0, 2.0]), 1)\n"
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
compilers = {{"torch_mlir", "torch._inductor.scheduler", "torch._inductor.ir", "shardc.dynamo.trace"}}
print(*sorted(compilers & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_second_process_traces_nothing_and_loads_no_compiler(folder: Path, program: str) -> None:
    """And its numbers are those of the first."""
    results = []
    for is_second in (False, True):
        command = [sys.executable, "-c", program, str(folder / "found.pt")]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert bool(run.stdout.split()) is not is_second, run.stdout + run.stderr
        results.append(torch.load(folder / "found.pt"))
    assert_equal(results[1], results[0])


@pytest.mark.slow
def test_two_processes_at_once(folder: Path, program: str) -> None:
    """Both compile, into one folder; a third finds what they left."""
    commands = [[sys.executable, "-c", program, str(folder / f"found{n}.pt")] for n in range(3)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for command in commands[:2]]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0 and "Warning" not in errors, errors
    last = subprocess.run(commands[2], capture_output=True, text=True, check=True)
    assert not last.stdout.split(), last.stdout + last.stderr
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
        _became.clear()
        torch.testing.assert_close(torch.compile(gelu, backend="shardc", dynamic=False)(x, w), gelu(x, w))
        assert looked_up() == expected
    assert phases == ["forward"]


@pytest.mark.slow
def test_what_a_program_depends_on_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = torch.randn(6, 8), torch.randn(8)

    def gelu_elsewhere(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x * w) + 1

    cases = [
        (gelu, (x, w), {}),
        (gelu_elsewhere, (x, w), {}),
        (gelu, (x[:3], w), {}),
        (gelu, (x.double(), w.double()), {}),
        (gelu, (x.T.contiguous().T, w), {}),
        (gelu, (x, x), {}),
        (gelu, (x, x.clone()), {}),
        (gelu, (x, w), {"fuse": False}),
        (gelu, (x, w), {"rounding": "eager"}),
        (gelu, (x, w), {"random": "torch"}),
    ]
    for number, (function, inputs, options) in enumerate(cases):
        found = step(function, *inputs, **options)
        assert looked_up() == {"miss": 1, "saved": 1}, number
        for ours, theirs in zip(found, eager(function, *inputs), strict=True):
            torch.testing.assert_close(ours, theirs)
    monkeypatch.setattr(trace_cache, "code_versions", lambda: ("the next version",))
    step(gelu, x, w)
    assert looked_up() == {"miss": 1, "saved": 1}


@pytest.mark.slow
def test_constants_are_looked_at() -> None:
    x = torch.randn(6)
    for number, value in enumerate((0.0, -0.0, 0, 1, 1.0, 1 + 1e-9, None, math.inf)):
        found = step(lambda x, value=value: torch.atan2(x * 0, x * (2 if value is None else value)), x)
        assert looked_up() == {"miss": 1, "saved": 1}, number
        assert_equal(found[:1], [torch.atan2(x * 0, x * (2 if value is None else value))])


@pytest.mark.slow
def test_calls_are_looked_at() -> None:
    x = torch.randn(6, 6)
    functions = (torch.sin, torch.cos, torch.Tensor.sin, nn.functional.silu, nn.functional.relu, torch.relu)
    for number, function in enumerate(functions):
        found = step(lambda x, f=function: f(x) * 2, x)
        assert looked_up() == {"miss": 1, "saved": 1}, number
        torch.testing.assert_close(found[0], function(x) * 2)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


STATES = {
    "autocast to bf16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to f16": lambda: torch.autocast("cpu", torch.float16),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "another dtype": lambda: _default_dtype(torch.float64),
    "other matmuls": lambda: _precision("medium"),
    "deterministic": _deterministic,
    "no oneDNN": lambda: torch.backends.mkldnn.flags(enabled=False),
    "plain attention": lambda: sdpa_kernel(SDPBackend.MATH),
    "another cut": lambda: torch._functorch.config.patch(activation_memory_budget=0.5),
}


@pytest.mark.slow
def test_pytorchs_state_is_looked_at() -> None:
    """A trace is found in no other state than its own, and there."""
    x, w = torch.randn(6, 8), torch.randn(8, 8)

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).tanh() + torch.ones(8)

    def run() -> torch.Tensor:
        torch._dynamo.reset()
        _became.clear()
        return torch.compile(product, backend="shardc", dynamic=False)(x, w)

    for expected in ({"miss": 1, "saved": 1}, {"hit": 1}):
        run()
        assert looked_up() == expected
        for name, state in STATES.items():
            with state():
                found, exact = run(), product(x, w)
            shared = name == "inference"  # Dynamo leaves it around the backend: the trace is that of no_grad
            assert looked_up() == ({"hit": 1} if shared else expected), name
            assert found.dtype == exact.dtype and found.is_inference() == exact.is_inference(), name
            torch.testing.assert_close(found, exact, rtol=0, atol=1e-2)


def test_what_needs_a_gradient_is_looked_at() -> None:
    for needs in ((True, False), (False, True), (True, True)):
        x, w = (torch.randn(4, requires_grad=need) for need in needs)
        torch._dynamo.reset()
        _became.clear()
        torch.compile(lambda x, w: (x * w).exp(), backend="shardc", dynamic=False)(x, w).sum().backward()
        assert looked_up() == {"miss": 1, "saved": 1}
        assert ((x.grad is not None), (w.grad is not None)) == needs


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
    (entry,) = (folder / "shardc").glob("trace-*")
    entry.write_bytes(entry.read_bytes()[:-20])
    assert_equal(step(gelu, x, w), first)
    assert looked_up() == {"miss": 1, "saved": 1} and len(phases) == 4
    assert not (folder / "torch" / "aotautograd").exists(), "PyTorch keeps no pickle of its own"


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
    ids=["an operator of a user's", "a higher-order operator", "constraints that are to be reported"],
)
def test_what_is_traced_each_time(function: Any, options: dict[str, Any], phases: list[str]) -> None:
    for runs in (1, 2):
        step(function, torch.ones(4, 4), **options)
        assert looked_up() == {} and phases == ["forward", "backward"] * runs


def test_symbolic_sizes_are_traced_each_time() -> None:
    for n in (3, 5, 7):
        torch._dynamo.reset()
        _became.clear()
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

    monkeypatch.setattr(compile_program, "run", broken)
    for _ in range(2):
        warned.clear()
        with pytest.warns(match="in a pass"):
            step(gelu, torch.randn(6, 8), torch.randn(8))
        assert looked_up() == {"miss": 1}
