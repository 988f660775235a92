"""Frames kept on disk: a second process does not trace, and no frame gets a trace that is not its own."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from shardc.diagnostics.dynamo import KeptFrameWarning
from shardc.driver.frames import cache
from shardc.driver.frames.content import Contents, NoContent

pytestmark = pytest.mark.filterwarnings("error::shardc.diagnostics.dynamo.KeptFrameWarning")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The two caches: ours, and PyTorch's below ``torch``."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "shardc"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    return tmp_path


MODEL = """
import torch
from torch import nn

SCALE = 2.0

def activation(x):
    return torch.tanh(x) * SCALE

class Block(nn.Module):
    rate = 0.5

    def __init__(self, width, factor=1.0):
        super().__init__()
        self.linear, self.factor = nn.Linear(width, width), factor

    def forward(self, x):
        y = activation(self.linear(x)) * self.factor + self.rate
        return torch.relu(y) if self.training else y
"""
RUN = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import kept_model
torch.manual_seed(0)
model = kept_model.Block(6)
x = torch.arange(12.0).reshape(2, 6) / 12
for call in (torch.compile(model, backend="shardc"), model):
    model.zero_grad()
    y = call(x)
    y.sum().backward()
    torch.save([y.detach(), *(p.grad for p in model.parameters())], sys.argv[2 if call is not model else 3])
counts = torch._dynamo.utils.counters
print(counts["shardc"]["frame_hit"], counts["shardc"]["frame_kept"], counts["stats"]["unique_graphs"])
"""
KEPT, FOUND = ["0", "1", "1"], ["1", "0", "0"]


def run(folder: Path) -> tuple[list[str], str]:
    """A process that compiles the model of ``folder``, whose result and gradients are eager's: frames found, kept and
    graphs traced; what it said.
    """
    files = [str(folder / "compiled.pt"), str(folder / "eager.pt")]
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder), *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for a, b in zip(*map(torch.load, files), strict=True):
        torch.testing.assert_close(a, b)
    return done.stdout.split(), done.stderr


def test_a_second_process_does_not_trace(folder: Path) -> None:
    """Until the model's source changes."""
    source = folder / "kept_model.py"
    source.write_text(MODEL)
    assert run(folder)[0] == KEPT
    counts, said = run(folder)
    assert counts == FOUND and "Warning" not in said, said
    source.write_text(MODEL.replace("torch.tanh(x)", "torch.cos(x)"))
    assert run(folder)[0] == KEPT


@pytest.fixture
def model_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the model above."""
    (folder / "kept_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "kept_model", raising=False)
    yield importlib.import_module("kept_model")
    sys.modules.pop("kept_model", None)


CHANGES: dict[str, Callable[[Any, nn.Module], Any]] = {
    "eval": lambda _, model: model.eval(),
    "a constant of the instance": lambda _, model: setattr(model, "factor", 3.0),
    "a constant of the class": lambda file, _: setattr(file.Block, "rate", 0.75),
    "a global": lambda file, _: setattr(file, "SCALE", 3.0),
    "a function": lambda file, _: setattr(file, "activation", torch.sin),
    "a method": lambda file, _: setattr(file.Block, "forward", lambda self, x: self.linear(x)),
    "a method of the instance": lambda _, model: setattr(model, "forward", lambda x: x * model.linear.bias),
    "a method of PyTorch's": lambda _, model: setattr(
        type(model.linear), "forward", lambda self, x: x @ self.weight
    ),
    "a hook": lambda _, model: model.linear.register_forward_hook(lambda module, x, y: y * 2),
    "strides of a parameter": lambda _, model: setattr(
        model.linear.weight, "data", model.linear.weight.detach().t()
    ),
    "a frozen parameter": lambda _, model: model.linear.weight.requires_grad_(False),
    "gradients": lambda _, model: torch.set_grad_enabled(False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_the_same_is_traced(
    change: str, model_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is the same again is found again."""
    monkeypatch.setattr(nn.Linear, "forward", nn.Linear.forward)  # put back after the test
    x = torch.randn(2, 6)
    step(model_file.Block(6), x)
    step(model_file.Block(6), x)
    assert found() == (1, 0)
    changed = model_file.Block(6)
    try:
        CHANGES[change](model_file, changed)
        result = step(changed, x)
        assert found()[0] == 0
        torch.testing.assert_close(result, changed(x))
    finally:
        torch.set_grad_enabled(True)


def step(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Result of a function compiled as a new process would: Dynamo has forgotten everything."""
    torch._dynamo.reset()
    counters.clear()
    return torch.compile(function, backend="shardc", **options)(*inputs)


def found() -> tuple[int, int]:
    """Frames found on disk and kept there since the last :func:`step` began."""
    return counters["shardc"]["frame_hit"], counters["shardc"]["frame_kept"]


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.tanh(x) * factor


class Wide(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def test_two_models_of_one_class() -> None:
    models, inputs = [Wide(4), Wide(5)], [torch.randn(2, 4), torch.randn(2, 5)]
    for expected in ((0, 1), (1, 0)):
        for model, x in zip(models, inputs, strict=True):
            torch.testing.assert_close(step(model, x, dynamic=False), model(x))
            assert found() == expected


def test_both_are_found_in_one_process() -> None:
    """Two frames of one code object, each with names of its own among the globals."""
    models, inputs = [Wide(4), Wide(5)], [torch.randn(2, 4), torch.randn(2, 5)]
    for model, x in zip(models, inputs, strict=True):
        step(model, x, dynamic=False)
    torch._dynamo.reset()
    counters.clear()
    compiled = [torch.compile(model, backend="shardc", dynamic=False) for model in models]
    for _ in range(2):
        for call, model, x in zip(compiled, models, inputs, strict=True):
            torch.testing.assert_close(call(x), model(x))
    assert found() == (2, 0)


def test_constants_of_one_shape_share_a_name() -> None:
    """Up to ``SLOTS`` of them."""
    functions = [lambda x, factor=factor: scaled(x, factor) for factor in (1.0, 2.0, 3.0)]
    x = torch.randn(3)
    for expected in ((0, 1), (1, 0)):
        for function in functions:
            torch.testing.assert_close(step(function, x), function(x))
            assert found() == expected


def test_sizes_that_change_become_symbolic() -> None:
    """After a size from disk as after one that was traced; what is symbolic is traced in each process."""
    for expected in ((0, 1), (1, 0)):
        torch._dynamo.reset()
        counters.clear()
        compiled = torch.compile(scaled, backend="shardc")
        for size in (5, 6, 7, 5):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x, 2.0), scaled(x, 2.0))
        assert found() == expected and counters["stats"]["unique_graphs"] == 2 - expected[0]


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) * 2


class Counting(Counted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) * self.norm.num_batches_tracked.item()


def test_batch_norm_counts_its_batches() -> None:
    """PyTorch has a symbol for a count that nothing reads."""
    x = torch.randn(4, 6)
    for expected in ((0, 1), (1, 0)):
        model, plain = Counted(), Counted()
        torch.testing.assert_close(step(model, x), plain(x))
        assert found() == expected
        torch.testing.assert_close(model.state_dict(), plain.state_dict())


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_a_count_that_is_read_is_not_kept() -> None:
    x = torch.randn(4, 6)
    for _ in range(2):
        model, plain = Counting(), Counting()
        torch.testing.assert_close(step(model, x), plain(x))
        assert found() == (0, 0)
        torch.testing.assert_close(torch.compile(model, backend="shardc")(x), plain(x))


def test_a_frame_that_is_broken_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was cut off, without a word; one that is whole and cannot be used, with a warning."""
    x = torch.randn(4)
    step(scaled, x, 2.0)
    (path,) = (folder / "shardc").glob("frame-*")
    path.write_bytes(path.read_bytes()[:-100])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(step(scaled, x, 2.0), scaled(x, 2.0))
    assert found() == (0, 1)
    cache.disk.keep(path.name, b"no pickle")
    with pytest.warns(KeptFrameWarning, match="KeptFrameBroken"):
        torch.testing.assert_close(step(scaled, x, 2.0), scaled(x, 2.0))
    assert found() == (0, 1)
    step(scaled, x, 2.0)
    assert found() == (1, 0)


def test_a_frame_without_its_program_is_traced(folder: Path) -> None:
    x = torch.randn(4)
    step(scaled, x, 2.0)
    for path in (folder / "shardc").glob("graph-*"):
        path.unlink()
    torch.testing.assert_close(step(scaled, x, 2.0), scaled(x, 2.0))
    assert found() == (0, 1)


def test_other_backends_and_options_have_frames_of_their_own() -> None:
    x = torch.randn(4)
    step(scaled, x, 2.0)
    step(scaled, x, 2.0, options={"numerics": "eager"})
    assert found() == (0, 1)
    torch._dynamo.reset()
    counters.clear()
    torch.compile(scaled, backend="aot_eager")(x, 2.0)
    assert found() == (0, 0)


def test_frames_are_kept_only_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_KEEP_FRAMES", "0")
    step(scaled, torch.randn(4), 2.0)
    assert found() == (0, 0)


def test_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_environment(x: torch.Tensor) -> torch.Tensor:
        return x * float(os.environ.get("FACTOR_OF_A_TEST", "1"))

    for factor, expected in (("2", (0, 1)), ("3", (0, 1)), ("2", (1, 0))):
        monkeypatch.setenv("FACTOR_OF_A_TEST", factor)
        x = torch.randn(3)
        torch.testing.assert_close(step(from_environment, x), from_environment(x))
        assert found() == expected


def test_a_graph_break_is_not_kept() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x)
        torch._dynamo.graph_break()
        return y * 2

    for _ in range(2):
        x = torch.randn(4)
        torch.testing.assert_close(step(broken, x), broken(x))
        assert counters["shardc"]["frame_not_kept"]


def test_memory_that_inputs_share_counts() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y

    def inputs(shared: bool) -> tuple[torch.Tensor, torch.Tensor]:
        memory = torch.arange(8.0)
        return (memory[:4], memory[2:6]) if shared else (memory[:4].clone(), memory[2:6].clone())

    for shared in (False, True, False, True):
        torch.testing.assert_close(step(write, *inputs(shared)), write(*inputs(shared)))


def test_content_of_values() -> None:
    """Equal for what is made alike, other for what is not; none for objects that are only themselves."""

    def made(factor: float) -> Callable[..., Any]:
        return lambda x: x * factor

    assert Contents().of(made(1.0)) == Contents().of(made(1.0)) != Contents().of(made(2.0))
    assert Contents().of({1, 2, 3}) == Contents().of({3, 2, 1})
    assert Contents().of(typing.Union) == Contents().of(typing.Union) != Contents().of(typing.Optional)
    assert Contents().of(torch.float32) != Contents().of(torch.float64)
    assert Contents().of(1) != Contents().of(1.0) != Contents().of(True)
    with pytest.raises(NoContent):
        Contents().of(object())
