"""Folders for the length of a block or of a process. They lie in the cache folder, or, where that is of no
use, in the system's temporary one; what a killed process left there, the next one removes.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path

from shardc.cache.place import make, trusted_folder

PREFIX = "scratch-"
"""Begins the name of a process's folder: eight characters follow."""
LOCK = ".lock"
"""The file in it that its process holds locked as long as it lives."""
_UNLOCKED_S = 3600.0
"""A folder without a lock that is so old is one of a process that was killed as it began."""


def scratch(prefix: str = "") -> tempfile.TemporaryDirectory[str]:
    """A new folder, which goes with its object, with its ``with`` block, or with this process."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=_of_process(os.getpid())[0])


@cache
def _of_process(process: int) -> tuple[Path, TextIOWrapper]:
    """The folder of this process, and its lock. A child that was forked has one of its own."""
    home = _home()
    _sweep(home)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
    lock = (folder / LOCK).open("w")
    with suppress(OSError):  # a file system without locks: nobody takes the folder, which may then stay
        fcntl.flock(lock, fcntl.LOCK_EX)

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder, lock


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
    """Whether a folder with a name that others can guess is this user's alone."""
    with suppress(OSError):
        found = folder.lstat()
        return found.st_uid == os.geteuid() and found.st_mode & 0o77 == 0 and folder.is_dir()
    return False


def _sweep(home: Path) -> None:
    """Removes the folders of processes that have ended without doing so."""
    for folder in home.glob(f"{PREFIX}{'?' * 8}"):
        with suppress(OSError):
            if folder.is_symlink() or folder.lstat().st_uid != os.geteuid() or _is_held(folder):
                continue
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    """Whether the process of a folder lives."""
    try:
        with (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:  # it has not come to that yet, or it never will; or it is not ours
        is_empty = not any(folder.iterdir())
        return not is_empty or time.time() - folder.lstat().st_mtime < _UNLOCKED_S
    except OSError:
        return True
