"""Compiled libraries on disk, found by the hash of what they were made from."""

from __future__ import annotations

import os
import tempfile
import warnings
from functools import cache
from pathlib import Path

from shardc.diagnostics.kernels import KernelCacheNotWritable, KernelCacheWarning
from shardc.runtime.kernels import is_whole, sealed

_said: set[Path] = set()


def cache_folder() -> Path:
    """``$SHARDC_CACHE_DIR``, else ``$XDG_CACHE_HOME/shardc``, else ``~/.cache/shardc``."""
    if named := os.environ.get("SHARDC_CACHE_DIR"):
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "shardc"


def find(key: str) -> Path | None:
    """The whole library of ``key``, if there is one. One that was cut off or changed counts as none."""
    for folder in (cache_folder(), _own_folder()):
        path = folder / _name(key)
        if path.is_file() and is_whole(path.read_bytes()):
            return path
    return None


def keep(key: str, library: bytes) -> Path:
    """Writes a library for every process to find, in one step; where that is not allowed, for this process alone."""
    try:
        return _write(cache_folder(), key, library)
    except OSError as error:
        folder = cache_folder()
        if folder not in _said:
            _said.add(folder)
            message = KernelCacheNotWritable(folder=folder, reason=error.strerror or error)
            warnings.warn(str(message), KernelCacheWarning, stacklevel=3)
        return _write(_own_folder(), key, library)


def _name(key: str) -> str:
    return f"kernels-{key}.so"


def _write(folder: Path, key: str, library: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(sealed(library))
        os.replace(name, folder / _name(key))
    except OSError:
        os.unlink(name)
        raise
    return folder / _name(key)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="shardc-kernels-")


def _own_folder() -> Path:
    return Path(_temporary().name)
