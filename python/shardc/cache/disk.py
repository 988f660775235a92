"""What was compiled, on disk: libraries and programs, found by the hash of what they were made from.

A file ends with a seal (:func:`shardc.runtime.kernels.library.sealed`), appears in one step, and the least
recently used go when all are larger than ``$SHARDC_CACHE_BYTES`` (default 2 GiB). A user's files may be in
the folder: only what has a name of ours (``OUR_NAME``) and our seal inside is counted, and removed.
"""

import fcntl
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from shardc.diagnostics.kernels import KernelCacheNotWritable, KernelCacheWarning
from shardc.environment import CACHE_BYTES, CACHE_DIR, CACHE_HOME
from shardc.runtime.kernels.library import SEAL, is_whole, sealed

OUR_NAME = re.compile(r"(kernels|triton|graph|trace|choice)-[0-9a-f]{32}\.[a-z]+")
"""Names of what is kept: a kind, a hash and a suffix. Libraries of any target are `kernels`."""
_said: set[Path] = set()


def cache_folder() -> Path:
    """``$SHARDC_CACHE_DIR``, else ``$XDG_CACHE_HOME/shardc``, else ``~/.cache/shardc``."""
    return CACHE_DIR.get() or (CACHE_HOME.get() or Path.home() / ".cache") / "shardc"


def find(name: str) -> Path | None:
    """The whole file ``name``, if there is one; ``keep`` replaces one that was cut off or changed."""
    found = read(name)
    return None if found is None else found[0]


def read(name: str) -> tuple[Path, bytes] | None:
    """The same file with its content, as :func:`keep` was given it."""
    for folder in (cache_folder(), Path(_temporary().name)):
        path = folder / name
        try:
            content = path.read_bytes()
        except OSError:  # another process may remove it at any time
            continue
        if is_whole(content):
            with suppress(OSError):  # another user's folder: it keeps its own count of what is used
                os.utime(path)
            return path, content[: -len(SEAL) - 32]
    return None


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Lets one process make the file ``name`` while others that want it wait, as the ranks of a step do.
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
    """Writes ``content``, sealed, for every process; where that is not allowed, for this one alone."""
    assert OUR_NAME.fullmatch(name), f"{name!r} would never be removed"
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
        return _write(Path(_temporary().name), name, content)


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
    """Removes the least recently used files of ours beyond the limit. An open library stays usable."""
    found = _named_as_ours(folder)
    if sum(size for _, size, _ in found) <= CACHE_BYTES.get():
        return
    found = [entry for entry in found if _has_seal(entry[2])]
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= CACHE_BYTES.get():
            return
        if path != newest:
            path.unlink(missing_ok=True)
            total -= size


def _named_as_ours(folder: Path) -> list[tuple[int, int, Path]]:
    """When each file with a name of ours was last used, in ns, its size in bytes, and its path."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not OUR_NAME.fullmatch(entry.name):
                continue
            with suppress(FileNotFoundError):  # another process prunes too
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, status.st_size, folder / entry.name))
    return found


def _has_seal(path: Path) -> bool:
    """Whether the file ends with a seal (:func:`~shardc.runtime.kernels.library.sealed`); no hash is made."""
    try:
        with path.open("rb") as file:
            file.seek(-len(SEAL) - 32, os.SEEK_END)
            return file.read(len(SEAL)) == SEAL
    except OSError:  # shorter than a seal, gone, or not ours to read
        return False


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="shardc-kernels-")
