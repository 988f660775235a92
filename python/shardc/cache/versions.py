"""Versions of the code that writes cache entries; they are part of every entry's key."""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def code_versions() -> tuple[str, ...]:
    """Return PyTorch's version, MLIR's, and a hash of shardc's own sources."""
    digest = hashlib.sha256()
    for file in sorted(_sources()):
        digest.update(file.read_bytes())
    return version("torch"), version("torch-mlir"), digest.hexdigest()


def _sources() -> Iterable[Path]:
    root = Path(__file__).parents[1]
    for folder in ("", "dialects", "passes", "backends"):  # these three may be links
        yield from (root / folder).resolve().rglob("*.py")
