"""Which code generator a trial was made with."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import shardc

_OF = {"cpu": "torch-mlir", "triton": "triton"}


@cache
def generator(target: str) -> str:
    """Of the backend of ``target``: the version of its compiler, and its table of configurations, on which the meaning of
    a point and the default that ratios are to depend. What else changes in a backend leaves a point legal and its
    results right, and its ratio about what it was.
    """
    backend = "cpu" if target.startswith("cpu") else "triton"
    table = Path(shardc.__file__).parent / "backends" / backend / "config.py"
    try:
        compiler = version(_OF[backend])
    except PackageNotFoundError:
        compiler = "none"
    return f"{backend} {hashlib.sha256(table.read_bytes()).hexdigest()[:16]} {_OF[backend]} {compiler}"
