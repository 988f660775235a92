"""What was compiled, on disk: libraries and programs, found by the hash of what they were made from.

A file ends with a seal (:func:`shardc.runtime.kernels.library.sealed`), appears in one step, and the least
recently used go when all are larger than ``$SHARDC_CACHE_BYTES`` (default 2 GiB). A user's files may be in
the folder: only what has a name of ours (``OUR_NAME``) and our seal inside is counted, and removed.

Entries are programs that run here. A folder that another user owns or can write to is not used
(:mod:`shardc.cache.trust`): its place takes a folder of this process's own, and a warning says so once.
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

OUR_NAME = re.compile(r"(kernels|triton|graph|trace|choice|cluster|step|plan)-[0-9a-f]{32}\.[a-z]+")
"""Names of what is kept: a kind, a hash and a suffix. Libraries of any target are `kernels`."""
PART = ".part"
"""Ends the name of a file that is being written: ``<name>.<8 characters>.part``."""
_ABANDONED_S = 3600.0
"""A part that nobody has written to for so long is one of a process that was killed."""
_own: list[Scratch] = []
"""The folder of this process, once it is needed."""


def find(name: str) -> Path | None:
    """The whole file ``name``, if there is one; ``keep`` replaces one that was cut off or changed."""
    found = read(name)
    return None if found is None else found[0]


def read(name: str) -> tuple[Path, bytes] | None:
    """The same file with its content, as :func:`keep` was given it."""
    if not OUR_NAME.fullmatch(name):  # an entry names another one: not ../../somewhere/else
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
            with suppress(OSError):  # of a folder of root's
                os.utime(path)
            CACHE.info("%s: hit in %s", name, folder)
            return path, content[: -len(SEAL) - 32]
        missed = f"damaged in {folder}"
    CACHE.info("%s: miss: %s", name, missed)
    return None


def discard(name: str) -> None:
    """Removes the file ``name``, whose content is of no use: what made it makes it again."""
    assert OUR_NAME.fullmatch(name), f"{name!r} is not ours to remove"
    for folder in _folders():
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Lets one process make the file ``name`` while others that want it wait, as the ranks of a step do.
    If it ends, however it ends, the next one goes on. Where the cache folder cannot be written nobody waits,
    and each makes its own.
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
    """Writes ``content``, sealed, for every process; where that is not allowed, for this one alone."""
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
    """What a file holds. Raises OSError for one that another user may have written, and for a link."""
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
    """Removes what killed processes left half written, and the least recently used files of ours beyond the
    limit. An open library stays usable.
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


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"*{PART}"):
        with suppress(OSError):  # another process prunes too
            is_ours = OUR_NAME.fullmatch(path.name.removesuffix(PART).rpartition(".")[0])
            if is_ours and time.time() - path.lstat().st_mtime > _ABANDONED_S:
                path.unlink()


def _has_seal(path: Path) -> bool:
    """Whether the file ends with a seal (:func:`~shardc.runtime.kernels.library.sealed`); no hash is made."""
    try:
        with path.open("rb") as file:
            file.seek(-len(SEAL) - 32, os.SEEK_END)
            return file.read(len(SEAL)) == SEAL
    except OSError:  # shorter than a seal, gone, or not ours to read
        return False


def _folders() -> Iterator[Path]:
    """Where entries may be: the cache folder, and the one that takes its place, if it has been needed."""
    folder = trusted_folder()
    if folder is not None:
        yield folder
    yield from (Path(own.name) for own in _own)


def _own_folder() -> Path:
    """That of this process, in the place of a cache folder that can't be used."""
    if not _own:
        _own.append(scratch())
    return Path(_own[0].name)
