"""Programs of ``torch.compile``'s graphs kept on disk: a graph that was compiled before is not even imported.

A program is found by the hash of all that decided its text: the graph's calls with their metadata and source lines,
the backend's settings, the versions of torch and of shardc, the CPU.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import shardc
from shardc.backends.cpu import cache as disk
from shardc.backends.cpu.target import host_model, target
from shardc.driver import module_archive
from shardc.runtime.kernels import Library
from shardc.runtime.program import Kernels
from shardc.runtime.triton_kernels import Modules


def versions() -> tuple[str, ...]:
    """All of shardc's own code is part of the key, and what it is compiled for."""
    return *_code_versions(), target(), host_model()


@cache
def _code_versions() -> tuple[str, ...]:
    digest = hashlib.sha256()
    for file in sorted(_sources()):
        digest.update(file.read_bytes())
    return version("torch"), version("torch-mlir"), digest.hexdigest()


def _sources() -> Iterable[Path]:
    root = Path(shardc.__file__).parent
    for folder in (
        root,
        *(root / name for name in ("dialects", "passes", "backends")),
    ):  # these three may be links
        yield from folder.resolve().rglob("*.py")


def load(key: str) -> tuple[str, Kernels | None] | None:
    """The text of the program and the library of its kernels, if both are there whole."""
    found = disk.read(f"graph-{key}.json")
    if found is None:
        return None
    stored: dict[str, Any] = json.loads(found[1])
    if stored["library"] is None:
        return stored["text"], None
    if stored["library"].endswith(module_archive.SUFFIX):
        modules = module_archive.find(stored["library"])
        return None if modules is None else (stored["text"], modules)
    library = disk.find(stored["library"])
    return None if library is None else (stored["text"], Library(library))


def store(key: str, text: str, library: Kernels | None) -> None:
    """Keeps a program for later processes."""
    content = {"text": text, "library": None if library is None else _name(library)}
    disk.keep(f"graph-{key}.json", json.dumps(content).encode())


def _name(library: Kernels) -> str:
    """The file that the library is kept in."""
    return (
        f"{library.folder.name}{module_archive.SUFFIX}" if isinstance(library, Modules) else library.path.name
    )
