"""Binaries of an artefact's Triton kernels. Triton reads them from the artefact, in this process only.

They are not written to Triton's cache, since all of a user's programs load code from there.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..check import AGAIN
from .bad_modules import BadModules

if TYPE_CHECKING:
    from triton.runtime.cache import CacheManager

KEY = "key"
"""JSON file beside a binary: Triton's version, the name of its metadata, the rest of Triton's key."""


@dataclass(frozen=True)
class _Entry:
    """Name of a binary's metadata, and its files: name -> path."""

    metadata: str
    paths: dict[str, str]


_entries: dict[str, _Entry] = {}
"""Binaries offered to this process, by Triton's key."""


def offer(binaries: Path) -> None:
    """Let Triton find the binaries of a folder, by target, Triton's version and source. Raises BadModules.

    Triton's key also has a hash of Triton's own files, which differ between its builds for different Pythons.
    The hash of the installed Triton is used here.
    """
    import triton
    from triton import knobs
    from triton.runtime.cache import FileCacheManager, triton_key

    for key in sorted(binaries.glob(f"*/{KEY}")):
        version, rest, entry = _read(key)
        if version == triton.__version__:
            digest = hashlib.sha256((triton_key() + rest).encode()).digest()
            _entries[base64.b32encode(digest).decode().rstrip("=")] = entry
    usual = knobs.cache.manager_class or FileCacheManager
    if _entries and not getattr(usual, "is_of_artefacts", False):
        knobs.cache.manager_class = _manager(usual)


def _read(key: Path) -> tuple[str, str, _Entry]:
    """Return Triton's version, the rest of its key, and the files beside ``key``. Raises BadModules."""
    try:
        found = json.loads(key.read_text())
        version, rest, metadata = (found[name] for name in ("triton", "rest", "metadata"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadModules(f"it does not parse ({type(error).__name__}: {error})", str(key), AGAIN) from None
    if not all(isinstance(text, str) for text in (version, rest, metadata)):
        raise BadModules("it holds values that are not strings", str(key), AGAIN)
    if Path(metadata).name != metadata or not (key.parent / metadata).is_file():
        raise BadModules(f"it names {metadata!r}, which is not a file beside it", str(key), AGAIN)
    stem = Path(metadata).stem
    paths = {p.name: str(p) for p in key.parent.iterdir() if p.stem == stem and p.is_file()}
    return version, rest, _Entry(metadata, paths)


@cache
def _manager(usual: type[CacheManager]) -> type[CacheManager]:
    """Return a class of Triton's cache that behaves like ``usual``, except for kernels of artefacts."""
    from triton.runtime.cache import CacheManager

    class Binaries(CacheManager):
        is_of_artefacts = True

        def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
            self._given: tuple[Any, ...] = (key, override, dump)
            self._entry = None if override or dump else _entries.get(key)
            self._made: CacheManager | None = None

        @property
        def _usual(self) -> CacheManager:
            """Return Triton's own cache, created only when needed, because it creates a folder."""
            self._made = self._made or usual(*self._given)
            return self._made

        def get_file(self, filename: str) -> str | None:
            return self._usual.get_file(filename)

        def put(self, data: Any, filename: str, binary: bool = True) -> str:
            return self._usual.put(data, filename, binary)

        def get_group(self, filename: str) -> dict[str, str] | None:
            if self._entry is not None and self._entry.metadata == filename:
                return dict(self._entry.paths)
            return self._usual.get_group(filename)

        def put_group(self, filename: str, group: dict[str, str]) -> Any:
            return self._usual.put_group(filename, group)

    return Binaries
