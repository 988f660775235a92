"""Binaries of an artefact's Triton kernels: Triton reads them where they lie, and in this process alone.

Nothing of them is written to Triton's cache, which all of a user's programs run from.
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
"""The JSON file beside a binary: Triton's version, the name of its metadata, the rest of Triton's key."""


@dataclass(frozen=True)
class _Entry:
    """The name of a binary's metadata, and the paths of its files by their names."""

    metadata: str
    paths: dict[str, str]


_entries: dict[str, _Entry] = {}
"""What was offered to this process, by Triton's key."""


def offer(binaries: Path) -> None:
    """Let Triton find the binaries of a folder, by target, Triton's version and source. Raises BadModules.

    Triton's key has a hash of its own files, too, which differ between its builds for different Pythons: here
    stands that of the Triton that is here.
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
    """Triton's version, the rest of its key, and what lies beside ``key``. Raises BadModules."""
    try:
        found = json.loads(key.read_text())
        version, rest, metadata = (found[name] for name in ("triton", "rest", "metadata"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadModules(f"it does not parse ({type(error).__name__}: {error})", str(key), AGAIN) from None
    if not all(isinstance(text, str) for text in (version, rest, metadata)):
        raise BadModules("it holds something else than texts", str(key), AGAIN)
    if Path(metadata).name != metadata or not (key.parent / metadata).is_file():
        raise BadModules(f"it names {metadata!r}, which is no file beside it", str(key), AGAIN)
    stem = Path(metadata).stem
    paths = {p.name: str(p) for p in key.parent.iterdir() if p.stem == stem and p.is_file()}
    return version, rest, _Entry(metadata, paths)


@cache
def _manager(usual: type[CacheManager]) -> type[CacheManager]:
    """Triton's cache of one kernel as ``usual``, but for kernels of artefacts."""
    from triton.runtime.cache import CacheManager

    class Binaries(CacheManager):
        is_of_artefacts = True

        def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
            self._given: tuple[Any, ...] = (key, override, dump)
            self._entry = None if override or dump else _entries.get(key)
            self._made: CacheManager | None = None

        @property
        def _usual(self) -> CacheManager:
            """Made when it is asked for: Triton's own makes a folder at once."""
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
