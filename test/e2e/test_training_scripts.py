"""The scripts of ``examples/training`` train as their plain PyTorch twins do, and differ in few lines."""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "training"
MOST_LINES = 12
"""In which a script differs from its twin."""

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def curves(script: str, *arguments: object, ranks: int = 0) -> dict[str, float]:
    """Each number that a script prints, by the words before it; every rank of ``ranks`` prints the same."""
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    )
    command = [sys.executable, *launcher, str(FOLDER / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    found: dict[str, float] = {}
    for head, rest in re.findall(r"((?:step|round) \d+) (.+?)(?=step|round|\n|$)", done.stdout):
        for name, value in re.findall(r"([a-z][a-z -]*) (-?\d+\.\d+)", rest):
            assert found.setdefault(f"{head} {name.strip()}", float(value)) == float(value), done.stdout
    return found


def assert_equal(ours: dict[str, float], plain: dict[str, float], count: int) -> None:
    assert ours.keys() == plain.keys() and len(plain) == count
    for name, value in plain.items():
        assert ours[name] == pytest.approx(value, rel=2e-4), name


@pytest.mark.parametrize("script", ["language_model", "gan", "fine_tune"])
def test_few_lines_differ(script: str) -> None:
    plain, ours = ((FOLDER / f"{script}{end}.py").read_text().splitlines() for end in ("_plain", ""))
    changed = [line for line in difflib.ndiff(plain, ours) if line.startswith("+ ")]
    assert 0 < len(changed) <= MOST_LINES, "\n".join(changed)


def test_a_language_model_resumed_on_another_mesh(tmp_path: Path) -> None:
    plain = curves("language_model_plain.py", "--steps", 20, "--checkpoint", tmp_path / "plain")
    first = curves("language_model.py", "--steps", 10, "--checkpoint", tmp_path / "ours", ranks=4)
    rest = curves("language_model.py", "--steps", 20, "--checkpoint", tmp_path / "ours", "--resume", ranks=2)
    assert not first.keys() & rest.keys()
    assert_equal(first | rest, plain, 20 + 4)


def test_a_gan() -> None:
    plain, ours = curves("gan_plain.py", "--rounds", 10), curves("gan.py", "--rounds", 10, ranks=2)
    assert_equal(ours, plain, 2 * 10)


def test_a_fine_tune_of_a_folder(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=128, **sizes)).save_pretrained(tmp_path / "start")
    plain = curves("fine_tune_plain.py", tmp_path / "start", tmp_path / "plain")
    ours = curves("fine_tune.py", tmp_path / "start", tmp_path / "ours", ranks=4)
    assert_equal(ours, plain, 10)
    wanted, found = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "ours"))
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        assert (found[name] - value).abs().max() < 1e-4, name
