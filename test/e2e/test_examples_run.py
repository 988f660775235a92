"""Each example runs as its docstring describes, proves its step, and its losses fall."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ELSEWHERE = {"llama", "llama_demo", "accelerate_tensorboard"}  # have tests of their own
RUN = {path.stem: path for path in sorted(EXAMPLES.glob("*.py")) if path.stem not in ELSEWHERE}
LINES = 80
QUICK = "recommendation"


def run(command: list[str], tmp_path: Path) -> str:
    """What a command prints, with this tree's shardc and a tuning database of its own."""
    python_path = str(EXAMPLES.parent / "python")
    environment = {
        **os.environ,
        "PYTHONPATH": python_path,
        "SHARDC_TUNING_DB": str(tmp_path / "trials.db"),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_output(text: str) -> None:
    losses = [float(value) for value in re.findall(r"^step \d+ loss ([\d.]+)$", text, re.MULTILINE)]
    assert len(losses) == 10
    assert losses[-1] < losses[0], losses
    assert re.search(r"^proved$", text, re.MULTILINE), text


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RUN]
)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    check_output(run([sys.executable, str(RUN[name])], tmp_path))


@pytest.mark.slow
@pytest.mark.processes
def test_checkpoints_on_two_processes(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    check_output(run([*launcher, str(RUN["checkpoints"])], tmp_path))


def test_examples_are_short_and_say_how_they_run() -> None:
    subjects = (
        "vision diffusion speech recommendation experts torch_compile custom_operators tuning checkpoints"
    )
    assert {*subjects.split()} == {*RUN}
    for path in RUN.values():
        text = path.read_text()
        assert len(text.splitlines()) <= LINES, path.name
        assert f"python examples/{path.name}" in text.split('"""')[1], path.name
