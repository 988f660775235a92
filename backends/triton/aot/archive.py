"""Folders of Triton modules in the disk cache: one file for each, unpacked by every process that uses it."""

from __future__ import annotations

import hashlib
import io
import logging
import tarfile
from functools import cache
from pathlib import Path

from shardc.cache import disk
from shardc.cache.scratch import Scratch, scratch

log = logging.getLogger(__name__)
SUFFIX = ".tar"


def keep(folder: Path) -> Path:
    """Put a folder into the cache; return its path in this process, whose name finds it again."""
    content = _packed(folder)
    name = f"triton-{hashlib.sha256(content).hexdigest()[:32]}"
    disk.keep(name + SUFFIX, content)
    return _unpacked(name, content)


def find(name: str) -> Path | None:
    """Return the folder of that name, if it is in the cache. An entry that does not parse is removed."""
    found = disk.read(name + SUFFIX)
    if found is None:
        return None
    try:
        return _unpacked(name, found[1])
    except tarfile.TarError as error:
        log.debug("the entry %s does not parse: %s", name, error)
        disk.discard(name + SUFFIX)
        return None


def _packed(folder: Path) -> bytes:
    """Pack a folder, deterministically."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            content, entry = path.read_bytes(), tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _unpacked(name: str, content: bytes) -> Path:
    folder = Path(_folder().name) / name
    if not folder.exists():
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
    return folder


@cache
def _folder() -> Scratch:
    return scratch()
