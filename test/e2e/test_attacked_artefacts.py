"""Attacks on an artefact that ``shardc run`` checks and starts: planted code does not run."""

from __future__ import annotations

import os
import py_compile
import shutil
import signal
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from shardc.cli import main

SCRIPT = """import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    return model, optimizer, (torch.randn(8, 8),), lambda out, batch: out.square().mean()
"""
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artefact for one rank. Not to be changed: take ``folder``."""
    root = tmp_path_factory.mktemp("attacked")
    (root / "train.py").write_text(SCRIPT)
    assert main(["compile", str(root / "train.py"), "--mesh", "data=1", "-o", str(root / "out")]) == 0
    return root / "out"


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "shardc", "run", *map(str, arguments)]


def attack(file: Path) -> str:
    return f"open({str(file)!r}, 'a').write(__file__); raise SystemExit('the attack runs')\n"


def plant_bytecode(source: Path, text: str, sign: Path) -> None:
    """In the place of ``source`` for Python's own loader, which does not look at it."""
    sign.with_suffix(".txt").write_text(text)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    made = cache_from_source(str(source))
    py_compile.compile(str(sign.with_suffix(".txt")), made, doraise=True, invalidation_mode=mode)


@pytest.mark.slow
def test_what_was_planted_does_not_run(folder: Path, tmp_path: Path) -> None:
    """Bytecode beside each file, an extension and a package in a module's place, and PyTorch's name."""
    sign = tmp_path / "ran"
    text = attack(sign)
    for source in [folder / "program.py", *(folder / "runtime").rglob("*.py")]:
        plant_bytecode(source, text, sign)
    for name in ("torch", "argparse", "pathlib", "importlib", "typing", "runtime"):
        (folder / f"{name}.py").write_text(text)
    (folder / "runtime" / f"run{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    ran = subprocess.run(command(folder, "--nproc", 1, "--steps", 1), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "step 1" in ran.stdout and not sign.exists()


@pytest.mark.slow
def test_a_run_writes_nothing_into_the_artefact(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    ran = subprocess.run(command(folder, "--nproc", 1, "--steps", 1), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert sorted(folder.rglob("*")) == before


@pytest.mark.slow
def test_ranks_end_with_a_launcher_that_is_killed(folder: Path) -> None:
    """They hold its output: the pipe ends when the last of them has."""
    process = subprocess.Popen(
        command(folder, "--nproc", 1, "--steps", 1_000_000_000), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "step 1" in process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    for _ in process.stdout:
        pass
    assert process.wait() == -signal.SIGKILL
