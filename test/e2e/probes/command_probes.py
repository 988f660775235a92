"""Probes of the command line: each option of each command with odd texts."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import typer
from probe import Probe

from shardc.cli import main
from shardc.cli.app import app

SCRIPT = """import torch
from torch import nn


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), (torch.ones(8, 8),), loss


def loss(output, batch):
    return output.square().mean()
"""
TEXTS = (
    "",
    "x",
    "-1",
    "0",
    "1",
    "1.5",
    "nan",
    "inf",
    "9" * 20,
    "9" * 5000,
    "a=b",
    "a=1,b",
    ",",
    "nowhere/x",
    ".",
)
"""Texts that most options do not take."""


def commands(folder: Path) -> dict[str, list[str]]:
    """A command line that works for each command, on the files that :func:`made` leaves."""
    return {
        "compile": ["compile", f"{folder}/train.py", "--mesh", "data=1", "--no-fuse", "-o", f"{folder}/new"],
        "check": ["check", f"{folder}/out", "--steps", "1"],
        "explain": ["explain", f"{folder}/out"],
        "run": ["run", f"{folder}/out", "--nproc", "1"],
        "schedule": ["schedule", "1f1b"],
        "tune": ["tune", f"{folder}/fused", "--space"],
        "opt": ["opt", f"{folder}/out/levels/1-global.mlir", "--cse"],
        "trials export": ["trials", "export", f"{folder}/trials.jsonl"],
        "trials import": ["trials", "import", f"{folder}/trials.jsonl"],
        "trials prune": ["trials", "prune"],
        "trials ranges": ["trials", "ranges"],
    }


def made(folder: Path) -> None:
    """Write what the commands read: a script, artefacts, and an export."""
    (folder / "train.py").write_text(SCRIPT)
    compile_ = ["compile", f"{folder}/train.py", "--mesh", "data=1"]
    assert ended([*compile_, "--no-fuse", "-o", f"{folder}/out"]) == ""
    assert ended([*compile_, "-o", f"{folder}/fused"]) == ""
    assert ended(["trials", "export", f"{folder}/trials.jsonl"]) == ""


def ended(arguments: list[str]) -> str:
    """How a command in this process ended badly; empty for a success and for an error in words."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(arguments)
    said = out.getvalue() + err.getvalue()
    is_right = code in (0, 1, 2) and "Traceback" not in said and "internal error" not in said
    return "" if is_right and (code == 0 or said) else f"exit code {code}: {said[-300:]}"


def checked(arguments: list[str]) -> None:
    """Raises AssertionError where a command ends badly."""
    assert not (problem := ended(arguments)), problem


def command_probes(folder: Path) -> Iterator[Probe]:
    """Each option of each command with each text, beside those that work."""
    known = typer.main.get_command(app)
    for name, line in commands(folder).items():
        words, command = name.split(), known
        for word in words:
            command = command.commands[word]  # type: ignore[attr-defined]
        for parameter in command.params:
            if parameter.param_type_name != "option" or parameter.name in ("help", "list_passes"):
                continue
            flag = parameter.opts[0]
            texts = [None] if parameter.is_flag else TEXTS  # type: ignore[attr-defined]
            for text in texts:
                if (name, flag, text) == ("check", "--steps", "9" * 20):  # right, and takes for ever
                    continue
                given = [flag] if text is None else [flag, text]
                yield Probe(f"{name} {flag} {(text or '')[:20]}", lambda a=[*line, *given]: checked(a))
        for text in TEXTS:
            more = [*line[: len(words)], text, *line[len(words) + 1 :]]
            yield Probe(f"{name} {text[:20]}", lambda a=more: checked(a))
