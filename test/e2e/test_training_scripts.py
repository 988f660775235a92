"""The scripts of ``examples/training`` train as their plain PyTorch twins do, and differ in few lines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import LlamaConfig, LlamaForCausalLM
from twins import FOLDER, SCRIPTS, changed, difference

GUIDE = FOLDER.parents[1] / "docs" / "guide" / "port_a_script.md"
MOST_LINES = 12
"""In which a script differs from its twin."""


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
        for name, value in re.findall(r"([a-z][a-z_ -]*) (-?\d+\.\d+)", rest):
            assert found.setdefault(f"{head} {name.strip()}", float(value)) == float(value), done.stdout
    return found


def assert_equal(ours: dict[str, float], plain: dict[str, float], count: int) -> None:
    assert ours.keys() == plain.keys() and len(plain) == count
    for name, value in plain.items():
        assert ours[name] == pytest.approx(value, rel=2e-4), name


def test_there_are_four_scripts() -> None:
    assert SCRIPTS == ["fine_tune", "gan", "language_model", "trainer"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_few_lines_differ(script: str) -> None:
    lines = changed(script)
    assert 0 < len(lines) <= MOST_LINES, "\n".join(lines)


def test_the_guide_shows_each_difference() -> None:
    shown = re.findall(r"^```diff\n(.*?)\n```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert {*shown} == {difference(script) for script in SCRIPTS} and len(shown) == len(SCRIPTS)


@pytest.mark.processes
@pytest.mark.slow
def test_a_language_model_resumed_on_another_mesh(tmp_path: Path) -> None:
    plain = curves("language_model_plain.py", "--steps", 20, "--checkpoint", tmp_path / "plain")
    first = curves("language_model.py", "--steps", 10, "--checkpoint", tmp_path / "ours", ranks=4)
    rest = curves("language_model.py", "--steps", 20, "--checkpoint", tmp_path / "ours", "--resume", ranks=2)
    assert not first.keys() & rest.keys()
    assert_equal(first | rest, plain, 20 + 4)


@pytest.mark.processes
@pytest.mark.slow
def test_a_gan() -> None:
    plain, ours = curves("gan_plain.py", "--rounds", 10), curves("gan.py", "--rounds", 10, ranks=2)
    assert_equal(ours, plain, 2 * 10)


@pytest.mark.processes
@pytest.mark.slow
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


@pytest.mark.processes
@pytest.mark.slow
def test_a_trainer(tmp_path: Path) -> None:
    plain = curves("trainer_plain.py", tmp_path / "plain")
    ours = curves("trainer.py", tmp_path / "ours", ranks=2)
    assert_equal(ours, plain, 15 * 2 + 3 * 2)
    found = [scalars(tmp_path / name) for name in ("plain", "ours")]
    assert found[0].keys() == found[1].keys() and {"train/loss", "train/grad_norm"} <= found[0].keys()
    for tag in ("train/loss", "train/grad_norm", "train/learning_rate", "eval/loss", "eval/accuracy"):
        assert found[1][tag] == pytest.approx(found[0][tag], rel=2e-4), tag


def scalars(folder: Path) -> dict[str, list[float]]:
    """What a Trainer wrote for TensorBoard, by tag."""
    [file] = folder.rglob("events.out.*")
    events = EventAccumulator(str(file)).Reload()
    return {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
