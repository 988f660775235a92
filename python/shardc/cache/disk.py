"""Compiled libraries and programs on disk, named by the hash of what they were compiled from.

A file is written atomically and ends with a seal (:func:`shardc.runtime.kernels.library.sealed`). When all
files exceed ``$SHARDC_CACHE_BYTES`` (default 2 GiB), the least recently used are removed. The folder may
also hold a user's files: only files with a name of ours (``OUR_NAME``) and our seal are counted and removed.

Entries are programs that run in this process. A folder that another user owns or can write to is therefore
not used (:mod:`shardc.cache.trust`): a folder private to this process replaces it, and shardc warns once.
"""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shardc.cache.lock import wait_for
from shardc.cache.place import cache_folder, make, say, trusted_folder
from shardc.cache.scratch import Scratch, scratch
from shardc.cache.trust import is_own_file
from shardc.diagnostics.kernels import KernelCacheNotWritable
from shardc.environment import CACHE_BYTES
from shardc.runtime.kernels.library import SEAL, is_whole, sealed
from shardc.runtime.report.logs import CACHE

OUR_NAME = re.compile(r"(kernels|triton|graph|trace|choice|cluster|step|plan|targets)-[0-9a-f]{32}\.[a-z]+")
"""Names of entries: a kind, a hash and a suffix. Libraries of any target have the kind `kernels`."""
PART = ".part"
"""Suffix of a file that is being written: ``<name>.<8 characters>.part``."""
_ABANDONED_S = 3600.0
"""Age at which an unfinished file counts as abandoned by a killed process."""
_own: list[Scratch] = []
"""This process's private folder, created when it is first needed."""


def find(name: str) -> Path | None:
    """Return the path of the entry ``name`` if it is complete.

    ``keep`` replaces a truncated or changed one.
    """
    found = read(name)
    return None if found is None else found[0]


def read(name: str) -> tuple[Path, bytes] | None:
    """Return the entry's path, and its content as :func:`keep` received it."""
    if not OUR_NAME.fullmatch(name):  # names may come from another entry: reject ../../somewhere/else
        return None
    missed = "not there"
    for folder in _folders():
        path = folder / name
        try:
            content = _content(path)
        except FileNotFoundError:  # another process may remove it at any time
            continue
        except OSError as error:
            missed = str(error)
            continue
        if is_whole(content):
            with suppress(OSError):  # the folder may belong to root
                os.utime(path)
            CACHE.info("%s: hit in %s", name, folder)
            return path, content[: -len(SEAL) - 32]
        missed = f"damaged in {folder}"
    CACHE.info("%s: miss: %s", name, missed)
    return None


def discard(name: str) -> None:
    """Remove the entry ``name`` because its content is unusable; the caller makes it anew."""
    assert OUR_NAME.fullmatch(name), f"{name!r} is not ours to remove"
    for folder in _folders():
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Let one process make the file ``name`` while others that need it wait, such as the ranks of a step.

    When that process ends for any reason, the next one continues. If the cache folder is not writable, no
    process waits and each makes its own file.
    """
    try:
        folder = trusted_folder()
        if folder is None:
            raise PermissionError
        make(folder)
        lock = (folder / f"{name}.lock").open("a+")
    except OSError:
        yield
        return
    with lock:
        wait_for(lock, name)
        try:
            yield
        finally:
            Path(lock.name).unlink(missing_ok=True)


def keep(name: str, content: bytes) -> Path:
    """Write ``content``, sealed, for all processes, or for this one alone if the cache folder is unusable."""
    assert OUR_NAME.fullmatch(name), f"{name!r} would never be removed"
    folder = trusted_folder()
    if folder is not None:
        try:
            path = _write(folder, name, content)
            CACHE.info("%s: kept, %d bytes", name, len(content))
            _prune(folder, path)
            return path
        except OSError as error:
            reason = error.strerror or error
            say(folder, KernelCacheNotWritable(folder=cache_folder(), reason=reason))
    return _write(_own_folder(), name, content)


def _content(path: Path) -> bytes:
    """Return a file's content.

    Raises OSError for a link, and for a file that another user may have written.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if not is_own_file(os.fstat(file.fileno())):
            raise PermissionError(f"{path} may have been written by another user")
        return file.read()


def _write(folder: Path, name: str, content: bytes) -> Path:
    make(folder)
    handle, part = tempfile.mkstemp(dir=folder, prefix=f"{name}.", suffix=PART)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(sealed(content))
        os.replace(part, folder / name)
    except OSError:
        os.unlink(part)
        raise
    return folder / name


def _prune(folder: Path, newest: Path) -> None:
    """Remove abandoned files, then the least recently used entries until the rest fit the limit.

    A library that a process has open stays usable.
    """
    _remove_abandoned(folder)
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
            CACHE.info("%s: removed: the folder is above %d bytes", path.name, CACHE_BYTES.get())
            total -= size


def _named_as_ours(folder: Path) -> list[tuple[int, int, Path]]:
    """Return the time of last use in ns, the size in bytes and the path of each file with a name of ours."""
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


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"*{PART}"):
        with suppress(OSError):  # another process prunes too
            is_ours = OUR_NAME.fullmatch(path.name.removesuffix(PART).rpartition(".")[0])
            if is_ours and time.time() - path.lstat().st_mtime > _ABANDONED_S:
                path.unlink()


def _has_seal(path: Path) -> bool:
    """Return whether the file ends with a seal, without computing its hash."""
    try:
        with path.open("rb") as file:
            file.seek(-len(SEAL) - 32, os.SEEK_END)
            return file.read(len(SEAL)) == SEAL
    except OSError:  # shorter than a seal, gone, or not ours to read
        return False


def _folders() -> Iterator[Path]:
    """Yield the folders of entries: the cache folder, and this process's own if one was created."""
    folder = trusted_folder()
    if folder is not None:
        yield folder
    yield from (Path(own.name) for own in _own)


def _own_folder() -> Path:
    """Return this process's private folder, which replaces a cache folder that can't be used."""
    if not _own:
        _own.append(scratch())
    return Path(_own[0].name)
