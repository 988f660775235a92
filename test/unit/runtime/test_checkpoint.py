"""A save that is killed, or fails, leaves the old checkpoint whole; checkpoints of earlier versions load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from shardc.commands.run import _check_checkpoints
from shardc.runtime import checkpoint
from shardc.runtime.errors import StateMismatch

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def value(number: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((10,), number)}


def loaded(folder: Path) -> float:
    found = value(-1.0)
    checkpoint.load(folder, found)
    (number,) = set(found["a"].tolist())
    return number


@pytest.mark.slow
@pytest.mark.parametrize("start", ["none", "flat", "replaced"])
def test_a_save_that_is_killed_at_any_point(start: str, tmp_path: Path) -> None:
    worker = Path(__file__).with_name("killed_saves.py")
    done = subprocess.run(
        [sys.executable, str(worker), str(tmp_path), start],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    before = "0" if start == "none" else "1"
    committed = [line[0] for line in lines].index("2")
    assert committed > 5 and len(lines) > committed + 1, "it died before that moment and after it"
    assert {line[0] for line in lines[:committed]} == {before}
    assert {line[0] for line in lines[committed:]} == {"2"}
    for _, metadata, payload in lines:  # nothing else
        assert metadata == ".metadata" and payload.startswith("shardc-save-")


def test_a_save_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, value(1))
    before = names_in(tmp_path)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(dcp.CheckpointException, match="no space left"):
            checkpoint.save(tmp_path, value(2))
    assert names_in(tmp_path) == before and loaded(tmp_path) == 1.0


def test_a_checkpoint_that_is_moved_or_copied_loads(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "here", value(1))
    (tmp_path / "here").rename(tmp_path / "there")
    assert loaded(tmp_path / "there") == 1.0
    found = value(0)
    dcp.load(found, checkpoint_id=tmp_path / "there", no_dist=True)
    assert found["a"].tolist() == [1.0] * 10, "without shardc, too"


def test_a_checkpoint_of_earlier_versions_loads_and_is_replaced(tmp_path: Path) -> None:
    dcp.save(value(1), checkpoint_id=tmp_path, no_dist=True)
    assert loaded(tmp_path) == 1.0
    mine = {"notes.txt", "shardc-save-of-mine", "__notes.distcp"}
    for name in mine:
        (tmp_path / name).write_text("mine")
    checkpoint.save(tmp_path, value(2))
    assert loaded(tmp_path) == 2.0
    first, *others = sorted({*names_in(tmp_path)} - mine)
    assert first == ".metadata" and len(others) == 1
    assert all((tmp_path / name).read_text() == "mine" for name in mine)


def test_where_a_first_save_was_killed_another_may_save(tmp_path: Path) -> None:
    (tmp_path / f"shardc-save-{'0' * 32}").mkdir()
    _check_checkpoints(None, tmp_path)  # of `shardc run --save`
    checkpoint.save(tmp_path, value(1))
    assert loaded(tmp_path) == 1.0 and len(names_in(tmp_path)) == 2


def test_a_checkpoint_of_another_program_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """torch.distributed.checkpoint would read a part of a larger tensor."""
    saved = {"a": torch.ones(10), "b": torch.ones(10)}
    checkpoint.save(tmp_path, saved)
    found = {"a": torch.zeros(10), "b": torch.zeros(5)}
    with pytest.raises(StateMismatch, match=r"'b' has shape \[10\] in the checkpoint and \[5\]"):
        checkpoint.load(tmp_path, found)
    with pytest.raises(StateMismatch, match="no tensor 'c'"):
        checkpoint.load(tmp_path, {"a": found["a"], "c": torch.zeros(10)})
    assert found["a"].tolist() == [0.0] * 10
