"""What everything that is kept on disk depends on: the code that made it."""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def code_versions() -> tuple[str, ...]:
    """PyTorch's version, MLIR's, and the content of all of shardc's own code."""
    digest = hashlib.sha256()
    for file in sorted(_sources()):
        digest.update(file.read_bytes())
    return version("torch"), version("torch-mlir"), digest.hexdigest()


def _sources() -> Iterable[Path]:
    root = Path(__file__).parents[1]
    for folder in ("", "dialects", "passes", "backends"):  # these three may be links
        yield from (root / folder).resolve().rglob("*.py")
