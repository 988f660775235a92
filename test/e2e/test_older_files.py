"""Files that an earlier version wrote load, or are refused by their version.

``older_files.tar.xz`` is of commit 6fb2989, before options were dataclasses, made from its ``train.py``::

    shardc compile train.py --mesh data=2 --plan zero3 --micro-batches 2 --clip 1.0 --no-fuse -o plain
    shardc run plain --nproc 2 --steps 2 --save ckpt
    shardc compile train.py --mesh data=2 --plan zero3 --micro-batches 2 --clip 1.0 --numerics eager \
        --matmuls extern --forbid tanh+pow -o out      # of which 4-kernel.mlir is kept
    shardc tune train.py --trials 2 --matmuls extern   # tuning.db
    shardc trials export trials.jsonl
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import shardc
from shardc.cli import main
from shardc.commands.script import read_script
from shardc.compiler.fusion_record import FusionRecord
from shardc.dialects.context import new_context
from shardc.passes.manager.mlir_errors import Source, parse_module


@pytest.fixture
def older(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).with_name("older_files.tar.xz")) as files:
        files.extractall(tmp_path, filter="data")
    return tmp_path


def loads(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command prints that could read its files; empty if it refused them by their version."""
    code, said = main([*map(str, arguments)]), capsys.readouterr()
    assert code == 0 or (code == 2 and "version" in said.err), said
    return said.out if code == 0 else ""


@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_folder_is_refused_by_its_version(
    older: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Programs are emitted otherwise since version 4, so one of version 3 would look changed."""
    assert main([command, str(older / "plain")]) == 2
    assert "the artefact is of version 3; this runtime reads version 4" in capsys.readouterr().err


def test_a_plan_is_followed(older: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = older / "plain" / "plan.json"
    mesh = ("--mesh", "data=2", "--micro-batches", 2, "--clip-grad-norm", 1.0, "--no-fuse")
    made = loads(capsys, "compile", older / "train.py", *mesh, "--plan", plan, "-o", older / "made")
    assert not made or (older / "made" / "plan.json").read_text() == plan.read_text()


def test_a_checkpoint_is_resumed(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    training = read_script(older / "train.py")
    step = shardc.compile_step(
        training.model,
        training.optimizer,
        training.batch,
        loss=training.loss,
        mesh={"data": 1},
        clip_grad_norm=1.0,
        fuse=False,
    )
    step.load_checkpoint(older / "ckpt")
    assert step.steps_done == 2
    assert float(step(training.batch)) < 0.00555  # the second step's was 0.00554661


def test_the_record_of_a_fusion_is_read(older: Path) -> None:
    path = older / "4-kernel.mlir"
    record = FusionRecord.read(parse_module(Source(str(path), path.read_text()), new_context()))
    assert (record.rounding, record.forbid, record.force) == ("eager", ("tanh+pow",), ())


@pytest.mark.parametrize("file", ["trials.jsonl", "tuning.db"])
def test_trials_are_imported(
    file: str, older: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_TUNING_DB", str(older / "new.db"))
    said = loads(capsys, "trials", "import", older / file)
    assert not said or said.startswith("2 ")


def test_trials_of_an_older_version_are_used_by_a_search(
    older: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_TUNING_DB", str(older / "tuning.db"))
    loads(capsys, "trials", "prune")
