"""Folders of Triton modules in the disk cache: one file each, unpacked by every process that runs them."""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from shardc.backends.cpu import cache as disk
from shardc.runtime.triton_kernels import Modules

SUFFIX = ".tar"


def keep(folder: Path) -> Modules:
    """Keeps a folder for later processes, and opens what is kept."""
    content = _packed(folder)
    name = f"triton-{hashlib.sha256(content).hexdigest()[:32]}"
    disk.keep(name + SUFFIX, content)
    return _opened(name, content)


def find(name: str) -> Modules | None:
    """What was kept under a name, if it is there whole."""
    found = disk.read(name)
    return None if found is None else _opened(name.removesuffix(SUFFIX), found[1])


def _packed(folder: Path) -> bytes:
    """The same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            content, entry = path.read_bytes(), tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _opened(name: str, content: bytes) -> Modules:
    folder = Path(_unpacked().name) / name
    if not folder.exists():
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
    return Modules(folder)


@cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="shardc-triton-")
