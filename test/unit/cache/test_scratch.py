"""Temporary folders of processes: none is left behind, and none of a running process is removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shardc.cache.scratch import scratch

PROCESS = """
import sys, time
from shardc.cache.scratch import scratch
folder = scratch()
open(folder.name + "/kernels.o", "w").write("half written")
print(folder.name, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "temporary").mkdir()
    return tmp_path / "cache"


def begun() -> tuple[subprocess.Popen[str], Path]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", PROCESS], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_process_that_ends_leaves_nothing(folder: Path) -> None:
    process, made = begun()
    assert made.parent == folder and made.is_dir()
    process.communicate("\n")
    assert list(folder.iterdir()) == [] and list((folder.parent / "temporary").iterdir()) == []


def test_what_a_killed_process_left_the_next_one_removes(folder: Path) -> None:
    killed, its = begun()
    living, other = begun()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert its.is_dir()
    with scratch():
        assert not its.exists()
        assert (other / "kernels.o").is_file()
    living.communicate("\n")
    assert list((folder.parent / "temporary").iterdir()) == []


def test_what_is_not_ours_stays(folder: Path) -> None:
    """Names of another form, and links. A name of ours that nobody has locked is one of a dead process."""
    for name in ("scratch-of-mine", "scratches", "scratch-abcdefgh"):
        (folder / name).mkdir(parents=True)
        (folder / name / "thesis.tex").write_text("")
    (folder / "scratch-link0123").symlink_to(folder.parent)
    with scratch() as made:
        found = {path.name for path in folder.iterdir()} - {Path(made).name}
    assert found == {"scratch-of-mine", "scratches", "scratch-link0123"} and folder.parent.is_dir()


def test_a_folder_that_was_removed_is_made_again(folder: Path) -> None:
    """A user may empty the cache while a process runs."""
    with scratch() as made:
        shutil.rmtree(folder)
        assert not Path(made).exists()
    with scratch() as made:
        assert Path(made).is_dir()


def test_where_the_cache_is_of_no_use(folder: Path) -> None:
    """It is a folder of this user's in the system's temporary one; a name that somebody took first is not."""
    folder.write_text("a file stands in its place")
    temporary = folder.parent / "temporary"
    own = temporary / f"shardc-{os.geteuid()}"
    with scratch() as made:
        assert Path(made).parent == own and own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    with scratch() as made:
        assert Path(made).parent != own and Path(made).parents[1] == temporary
