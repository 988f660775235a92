"""Programs of ``torch.compile``'s graphs kept on disk: a graph that was compiled before is not even imported.

A program is found by the hash of all that decided its text: the graph's calls with their metadata and source
lines, the backend's settings, the versions of torch and of shardc, the CPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shardc.backends.registry import BACKENDS, backend_class
from shardc.cache import disk as disk
from shardc.cache.versions import code_versions
from shardc.runtime.kernels.loaders import Kernels


def versions() -> tuple[str, ...]:
    """All of shardc's own code is part of the key."""
    return code_versions()


def load(key: str) -> tuple[str, Kernels | None] | None:
    """The text of the program and the library of its kernels, if both are there whole."""
    found = disk.read(f"graph-{key}.json")
    if found is None:
        return None
    stored: dict[str, Any] = json.loads(found[1])
    if stored["library"] is None:
        return stored["text"], None
    if stored["backend"] not in BACKENDS:
        return None
    backend = backend_class(stored["backend"])
    path = backend.find(stored["library"])
    return None if path is None else (stored["text"], backend.load(path))


def store(key: str, text: str, backend: str = "", library: Path | None = None) -> None:
    """Keeps a program for later processes, and which backend made its kernels."""
    content = {"text": text, "backend": backend, "library": None if library is None else library.name}
    disk.keep(f"graph-{key}.json", json.dumps(content).encode())
