"""Folders of Triton modules in the disk cache: one file each, unpacked by every process that runs them."""

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
    """Keeps a folder for later processes; where it lies in this one, under the name that it is found by."""
    content = _packed(folder)
    name = f"triton-{hashlib.sha256(content).hexdigest()[:32]}"
    disk.keep(name + SUFFIX, content)
    return _unpacked(name, content)


def find(name: str) -> Path | None:
    """The folder that was kept under a name, if it is there whole. One that does not parse is removed."""
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
    """The same bytes for the same files."""
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
