"""Temporary folders that live as long as a block or an object.

They lie in the cache folder, or in the system's temporary folder if the cache folder is unusable. A later
process removes folders that a killed process left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from shardc.cache.place import make, trusted_folder

PREFIX = "scratch-"
"""Prefix of a folder's name; eight characters follow."""


class Scratch(tempfile.TemporaryDirectory[str]):
    """Temporary folder with a lock, which tells other processes that its owner is alive."""

    def __init__(self, home: Path) -> None:
        with _locked(home, fcntl.LOCK_SH):
            super().__init__(prefix=PREFIX, dir=home)
            self._handle = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # without lock support nobody removes the folder, and it may stay
                fcntl.flock(self._handle, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        super().cleanup()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def scratch() -> Scratch:
    """Return a new folder, which goes with its object, its ``with`` block, or this process."""
    home = _home()
    _sweep(home)
    return Scratch(home)


def _home() -> Path:
    folder = trusted_folder()
    if folder is not None:
        with suppress(OSError):
            make(folder)
            if folder.is_dir() and os.access(folder, os.W_OK):
                return folder
    home = Path(tempfile.gettempdir(), f"shardc-{os.geteuid()}")
    with suppress(OSError):
        home.mkdir(mode=0o700, exist_ok=True)
    return home if _is_own(home) else Path(tempfile.mkdtemp(prefix="shardc-"))


def _is_own(folder: Path) -> bool:
    """Return whether a folder with a guessable name belongs to this user alone."""
    with suppress(OSError):
        found = folder.lstat()
        return found.st_uid == os.geteuid() and found.st_mode & 0o77 == 0 and not folder.is_symlink()
    return False


@cache
def _sweep(home: Path) -> None:
    """Remove folders of processes that ended without doing so; runs once in a process."""
    with suppress(OSError), _locked(home, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for folder in home.glob(f"{PREFIX}{'?' * 8}"):
            with suppress(OSError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                if folder.lstat().st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Hold a lock of a folder. Raises OSError if another process has it and ``how`` does not wait."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if how & fcntl.LOCK_NB:
            fcntl.flock(handle, how)
        else:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)
