"""Scripts for ``shardc compile``: possible mistakes, and the line that each message names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardc.commands.script import read_script
from shardc.diagnostics.api import BadScript, ScriptFailed
from shardc.diagnostics.base import ShardcError

GOOD = """import torch

def build():
    model = torch.nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), (torch.ones(2, 4),), lambda out, batch: out.sum()
"""  # noqa: E501


def returning(values: str) -> str:
    """A script whose ``build()`` returns ``values``."""
    lines = [
        "import torch",
        "",
        "def build():",
        "    model = torch.nn.Linear(4, 2)",
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "    batch = (torch.ones(2, 4),)",
        "    loss = lambda out, batch: out.sum()",
        "    loader = torch.utils.data.DataLoader([torch.ones(4)])",
        f"    return {values}",
    ]
    return "\n".join(lines) + "\n"


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_(text: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(text)
        return path

    return write_


def refused(path: Path, kind: type[ShardcError]) -> ShardcError:
    with pytest.raises(kind) as caught:
        read_script(path)
    assert str(path) in caught.value.render()
    return caught.value


def test_a_script_may_import_its_neighbours(write: Write, tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_train.py").write_text("WIDTH = 4\n")
    path = write(GOOD.replace("import torch\n", "import torch\nfrom neighbour_of_train import WIDTH\n", 1))
    training = read_script(path)
    assert type(training.model).__name__ == "Linear"
    assert callable(training.loss)


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("x = 1\n", "defines no function build()", None),
        ("build = 3\n", "defines no function build()", None),
        ("def build():\n    pass\n", "build() that returns None, not 3 or 4 values", 1),
        ("\ndef build():\n    return 1, 2\n", "build() that returns 2 values, not 3 or 4 values", 2),
        (GOOD.replace("return model,", "return 'gpt2',"), "whose model is a str, not a torch.nn.Module", 3),
        (
            GOOD.replace("torch.optim.SGD(model.parameters(), lr=0.1)", "None"),
            "whose optimizer is None, not a torch.optim.Optimizer",
            3,
        ),
        (GOOD.replace("(torch.ones(2, 4),)", "None"), "whose batch is None, not a mapping, tuple or list", 3),
        (GOOD.replace("lambda out, batch: out.sum()", "'mse'"), "whose loss is a str, not a function", 3),
        (
            returning("optimizer, model, batch"),
            "returns (optimizer, model, batch): return them in",
            3,
        ),
        (returning("model, batch, optimizer"), "returns (model, batch, optimizer): return them in", 3),
        (returning("batch, model, optimizer, loss"), "returns (batch, model, optimizer, loss): return", 3),
        (returning("model, optimizer"), "returns 2 values, not 3 or 4 values: the batch is missing", 3),
        (returning("model, batch"), "2 values, not 3 or 4 values: the optimizer is missing", 3),
        (returning("model, optimizer, batch, loss, 1"), "returns 5 values, not 3 or 4 values", 3),
        (
            returning("torch.nn.Linear, optimizer, batch"),
            "model is the class Linear, not a",
            3,
        ),
        (returning("model, torch.optim.SGD, batch"), "optimizer is the class SGD, not a torch.optim", 3),
        (returning("model, optimizer, batch, torch.nn.MSELoss"), "loss is the class MSELoss, not a func", 3),
        (
            returning("model, optimizer, loader"),
            "batch is a DataLoader, not one batch of it",
            3,
        ),
        (returning("model, optimizer, iter(loader)"), "not one batch of it: return next(iter(loader))", 3),
        (GOOD.replace("build()", "build(args)"), "defines build(args), which is called without arguments", 3),
        ("class build:\n    pass\n", "defines build as the class build, not as a function", None),
    ],
)
def test_what_build_returns(write: Write, text: str, problem: str, line: int | None) -> None:
    path = write(text)
    error = refused(path, BadScript)
    assert problem in error.render()
    assert error.where == (f"{path}:{line}" if line else str(path))


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("def build():\n    raise KeyError('lr')\n", "raised KeyError: 'lr'", 2),
        (
            "def build():\n    return inner()\ndef inner():\n    return 1 / 0\n",
            "raised ZeroDivisionError: division",
            4,
        ),
        (
            "import torch\nimport nowhere_at_all\n",
            "raised ModuleNotFoundError: No module named 'nowhere_at_all'",
            2,
        ),
        ("x = 1\ndef build(:\n", "raised SyntaxError: invalid syntax", 2),
        ("raise ValueError\n", "raised ValueError", 1),
        ("def build():\n    raise ValueError('first\\nsecond')\n", "raised ValueError: first\n", 2),
        ("import sys\nsys.exit(7)\n", "ended the process (exit code 7)", 2),
        ("def build():\n    raise SystemExit\n", "ended the process (exit code None)", 2),
    ],
)
def test_code_that_raises_is_named_with_its_line(
    write: Write, text: str, problem: str, line: int | None
) -> None:
    path = write(text)
    error = refused(path, ScriptFailed)
    assert problem in error.render()
    assert error.where == (f"{path}:{line}" if line else str(path))
    assert f"make `python {path}` work by itself first" in error.render()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "text",
    [
        returning("optimizer, model, batch"),
        returning("model, optimizer"),
        "def build():\n    1 / 0\n",
        "x = 1\n",
    ],
)
def test_what_is_wrong_is_told_before_the_compiler_is_imported(write: Write, text: str) -> None:
    """By the modules and not by a clock: MLIR and Triton take seconds, on a slow machine many."""
    path = write(text)
    watch = "import sys; print(*{'torch_mlir', 'triton'} & set(sys.modules))"
    by_itself = f"import runpy, torch; torch.optim.SGD([torch.ones(1)]); {watch}"
    command = f"main(['compile', {str(path)!r}, '-o', {str(path.with_name('out'))!r}, '--mesh', 'data=2'])"
    ours = f"from shardc.cli import main; assert {command} == 2; {watch};"
    ours += "assert not [n for n in sys.modules if n.startswith(('shardc.step', 'shardc.frontend'))]"
    found, torchs = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for code in (ours, by_itself)
    )
    assert "torch_mlir" not in found.stdout and set(found.stdout.split()) <= set(torchs.stdout.split())
    assert str(path) in found.stderr
