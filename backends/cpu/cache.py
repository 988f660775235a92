"""What was compiled, on disk: libraries and programs, found by the hash of what they were made from.

A file ends with a seal (:func:`shardc.runtime.kernels.sealed`), appears in one step, and the least recently used go
when all together are larger than ``$SHARDC_CACHE_BYTES`` (default 2 GiB).
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from shardc.diagnostics.kernels import KernelCacheNotWritable, KernelCacheWarning
from shardc.runtime.kernels import SEAL, is_whole, sealed

DEFAULT_BYTES = 2 << 30
_said: set[Path] = set()


def cache_folder() -> Path:
    """``$SHARDC_CACHE_DIR``, else ``$XDG_CACHE_HOME/shardc``, else ``~/.cache/shardc``."""
    if named := os.environ.get("SHARDC_CACHE_DIR"):
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "shardc"


def size_limit_bytes() -> int:
    """``$SHARDC_CACHE_BYTES``; the default where that is no number."""
    named = os.environ.get("SHARDC_CACHE_BYTES", "")
    return int(named) if named.isdecimal() else DEFAULT_BYTES


def find(name: str) -> Path | None:
    """The whole file ``name``, if there is one. One that was cut off or changed is removed and counts as none."""
    found = _whole(name)
    return None if found is None else found[0]


def read(name: str) -> tuple[Path, bytes] | None:
    """The same file with its content, as :func:`keep` was given it."""
    found = _whole(name)
    return None if found is None else (found[0], found[1][: -len(SEAL) - 32])


def _whole(name: str) -> tuple[Path, bytes] | None:
    """With its seal."""
    for folder in (cache_folder(), _own_folder()):
        path = folder / name
        try:
            content = path.read_bytes()
        except OSError:  # another process may remove it at any time
            continue
        if is_whole(content):
            with suppress(OSError):  # another user's folder: it keeps its own count of what is used
                os.utime(path)
            return path, content
        with suppress(OSError):
            path.unlink()
    return None


@contextmanager
def alone(name: str) -> Iterator[None]:
    """While one process makes the file ``name``, others that want to wait: the ranks of a step compile the same
    library.

    Where the cache folder cannot be written nobody waits, and each makes its own.
    """
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        lock = (cache_folder() / f"{name}.lock").open("w")
    except OSError:
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            Path(lock.name).unlink(missing_ok=True)


def keep(name: str, content: bytes) -> Path:
    """Writes ``content``, sealed, for every process to find; where that is not allowed, for this process alone."""
    try:
        path = _write(cache_folder(), name, content)
        _prune(cache_folder(), path)
        return path
    except OSError as error:
        folder = cache_folder()
        if folder not in _said:
            _said.add(folder)
            message = KernelCacheNotWritable(folder=folder, reason=error.strerror or error)
            warnings.warn(str(message), KernelCacheWarning, stacklevel=3)
        return _write(_own_folder(), name, content)


def _write(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(sealed(content))
        os.replace(part, folder / name)
    except OSError:
        os.unlink(part)
        raise
    return folder / name


def _prune(folder: Path, newest: Path) -> None:
    """Removes what was not used for longest until the folder is within its limit.
    A library that is open stays usable.
    """
    found = []
    for path in (p for p in folder.iterdir() if p.suffix not in (".part", ".lock")):
        with suppress(FileNotFoundError):  # another process prunes too
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= size_limit_bytes():
            return
        if path != newest:
            path.unlink(missing_ok=True)
            total -= size


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="shardc-kernels-")


def _own_folder() -> Path:
    return Path(_temporary().name)
