"""A save that is killed, or fails, leaves the old checkpoint whole; checkpoints of earlier versions load."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from shardc.commands.run import _check_checkpoints
from shardc.runtime.checkpoint.load import load as load_values
from shardc.runtime.checkpoint.save import Saver
from shardc.runtime.checkpoint.save import save as save_values
from shardc.runtime.errors import BadCheckpoint, CheckpointNotSaved, StateMismatch


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def value(number: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((10,), number)}


def loaded(folder: Path) -> float:
    found = value(-1.0)
    load_values(folder, found)
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
    save_values(tmp_path, value(1))
    before = names_in(tmp_path)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(CheckpointNotSaved, match="no space left"):
            save_values(tmp_path, value(2))
    assert names_in(tmp_path) == before and loaded(tmp_path) == 1.0


def test_a_checkpoint_that_is_moved_or_copied_loads(tmp_path: Path) -> None:
    save_values(tmp_path / "here", value(1))
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
    save_values(tmp_path, value(2))
    assert loaded(tmp_path) == 2.0
    first, *others = sorted({*names_in(tmp_path)} - mine)
    assert first == ".metadata" and len(others) == 1
    assert all((tmp_path / name).read_text() == "mine" for name in mine)


def test_where_a_first_save_was_killed_another_may_save(tmp_path: Path) -> None:
    (tmp_path / f"shardc-save-{'0' * 32}").mkdir()
    _check_checkpoints(None, tmp_path)  # of `shardc run --save`
    save_values(tmp_path, value(1))
    assert loaded(tmp_path) == 1.0 and len(names_in(tmp_path)) == 2


@pytest.mark.slow
def test_a_save_that_is_killed_after_any_time(tmp_path: Path) -> None:
    """50 of 50 leave the old checkpoint, or the new one."""
    worker = Path(__file__).with_name("killed_saves.py")
    command = [sys.executable, str(worker), str(tmp_path), "replaced", "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    versions = done.stdout.split()
    assert len(versions) == 50 and {"1"} < set(versions) | {"2"} <= {"1", "2"}


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands for one: a write ends in the middle."""
    checkpoint = tmp_path / "checkpoint"
    save_values(checkpoint, value(1))
    before = names_in(checkpoint)
    script = (
        "import resource, signal, sys, torch; from pathlib import Path\n"
        "from shardc.runtime.checkpoint.save import save\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "save(Path(sys.argv[1]), {'a': torch.ones(100_000)})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(checkpoint)], capture_output=True, text=True)
    assert "CheckpointNotSaved: rank 0: " in done.stderr, done.stderr
    assert "see whether the disk is full, and save again: a checkpoint that was there is whole" in done.stderr
    assert names_in(checkpoint) == before and loaded(checkpoint) == 1.0


def test_a_series_keeps_its_last(tmp_path: Path) -> None:
    saver = Saver()
    for steps in (10, 20, 30):
        saver.save(tmp_path, value(steps), {}, steps, keep=2, wait=True)
    assert names_in(tmp_path) == ["step-00000020", "step-00000030"] and loaded(tmp_path) == 30.0
    assert loaded(tmp_path / "step-00000020") == 20.0
    # training that went back to step 20 and on from there: what is saved last counts
    saver.save(tmp_path, value(25), {}, 25, keep=2, wait=True)
    assert names_in(tmp_path) == ["step-00000025", "step-00000030"] and loaded(tmp_path) == 25.0


def test_a_series_and_one_checkpoint_are_not_mixed(tmp_path: Path) -> None:
    save_values(tmp_path / "one", value(1))
    Saver().save(tmp_path / "series", value(1), {}, 1, keep=1, wait=True)
    with pytest.raises(CheckpointNotSaved, match=r"holds no series of checkpoints(.|\n)*leave keep_last out"):
        Saver().save(tmp_path / "one", value(2), {}, 2, keep=1, wait=True)
    with pytest.raises(CheckpointNotSaved, match=r"holds no checkpoint(.|\n)*pass keep_last="):
        save_values(tmp_path / "series", value(2))
    with pytest.raises(CheckpointNotSaved, match="keep_last is 0"):
        Saver().save(tmp_path / "series", value(2), {}, 2, keep=0, wait=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointNotSaved, match="it is not a folder"):
        save_values(tmp_path / "file", value(2))


def test_a_save_in_the_background_has_the_values_of_its_call(tmp_path: Path) -> None:
    saver, held = Saver(), value(1)
    saving = saver.save(tmp_path, held, {}, 0, keep=None, wait=False)
    held["a"].fill_(7.0)
    saving.wait()
    assert saving.is_done and loaded(tmp_path) == 1.0
    saver.save(tmp_path, value(2), {}, 0, keep=None, wait=False).wait()
    assert loaded(tmp_path) == 2.0 and len(names_in(tmp_path)) == 2, "what was replaced is gone"


def test_a_save_in_the_background_that_fails_is_an_error_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver()

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        saving = saver.save(tmp_path, value(1), {}, 0, keep=None, wait=False)
        with pytest.raises(CheckpointNotSaved, match="no space left on device"):
            saving.wait()
        with pytest.raises(CheckpointNotSaved, match="no space left on device"):
            saver.save(tmp_path, value(2), {}, 0, keep=None, wait=True)
    saver.save(tmp_path, value(3), {}, 0, keep=None, wait=True)
    assert loaded(tmp_path) == 3.0


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "one bit": lambda path: path.write_bytes(_flipped(path.read_bytes())),
    "garbled": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [".metadata", "shardc.json", "__0_0.distcp"])
def test_damage_of_a_file_is_named(name: str, damage: str, tmp_path: Path) -> None:
    save_values(tmp_path, value(1))
    (path,) = tmp_path.rglob(name)
    DAMAGES[damage](path)
    with pytest.raises(BadCheckpoint) as raised:
        load_values(tmp_path, value(0))
    if (name, damage) not in {(".metadata", "missing"), (".metadata", "a folder")}:
        assert f"{name} is damaged" in str(raised.value) and "copy the checkpoint again" in str(raised.value)
    else:
        assert "it holds no checkpoint" in str(raised.value)


def test_each_flipped_bit_of_metadata_of_an_earlier_version_is_an_error_of_ours(tmp_path: Path) -> None:
    """There are no hashes there: values are right, or an error is ours."""
    dcp.save(value(1), checkpoint_id=tmp_path, no_dist=True)
    path, ours = tmp_path / ".metadata", 0
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(_flipped(whole, place))
        try:
            assert loaded(tmp_path) == 1.0
        except (BadCheckpoint, StateMismatch):
            ours += 1
    assert ours > 20


class Evil:
    """What would run as it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self.path,)


def test_nothing_of_a_pickle_is_executed(tmp_path: Path) -> None:
    dcp.save(value(1), checkpoint_id=tmp_path / "there", no_dist=True)
    (tmp_path / "there" / ".metadata").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    with pytest.raises(BadCheckpoint, match="it names pathlib"):
        load_values(tmp_path / "there", value(0))
    (tmp_path / "there" / ".metadata").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(BadCheckpoint, match="no whole Metadata: list"):
        load_values(tmp_path / "there", value(0))
    torch.save({"a": Evil(tmp_path / "ran")}, tmp_path / "evil")
    dcp.save(value(1), checkpoint_id=tmp_path / "here", no_dist=True)
    (tmp_path / "here" / "__0_0.distcp").write_bytes((tmp_path / "evil").read_bytes())
    with pytest.raises(BadCheckpoint, match="can't be read"):
        load_values(tmp_path / "here", value(0))
    assert not (tmp_path / "ran").exists()


def test_tensors_outside_of_the_folder_are_not_read(tmp_path: Path) -> None:
    dcp.save(value(1), checkpoint_id=tmp_path / "secret", no_dist=True)
    shutil.copytree(tmp_path / "secret", tmp_path / "there")
    metadata = pickle.loads((tmp_path / "there" / ".metadata").read_bytes())
    for place in metadata.storage_data.values():
        place.relative_path = "../secret/__0_0.distcp"
    (tmp_path / "there" / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(BadCheckpoint, match="outside of the folder"):
        load_values(tmp_path / "there", value(0))


def _flipped(content: bytes, place: int | None = None) -> bytes:
    place = len(content) // 2 if place is None else place
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def test_a_checkpoint_of_another_program_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """torch.distributed.checkpoint would read a part of a larger tensor."""
    saved = {"a": torch.ones(10), "b": torch.ones(10)}
    save_values(tmp_path, saved)
    found = {"a": torch.zeros(10), "b": torch.zeros(5)}
    with pytest.raises(StateMismatch, match=r"'b' has shape \[10\] in the checkpoint and \[5\]"):
        load_values(tmp_path, found)
    with pytest.raises(StateMismatch, match="no tensor 'c'"):
        load_values(tmp_path, {"a": found["a"], "c": torch.zeros(10)})
    assert found["a"].tolist() == [0.0] * 10
