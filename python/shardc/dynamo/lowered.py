"""Names of the calls that kernels can hold, without MLIR, which the table of lowerings loads."""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache

from shardc.cache import disk
from shardc.cache.versions import code_versions
from shardc.dynamo import child


@cache
def lowered() -> frozenset[str]:
    """Return :func:`~shardc.passes.fuse.lower.table.lowered_targets`.

    A process without MLIR reads them from the cache on disk, and has a child write them there first.
    """
    if "torch_mlir" in sys.modules:
        return _listed()
    found = _kept()
    if found is None and child.is_of_use() and child.has_done(keep_lowered):
        found = _kept()
    return _listed() if found is None else found


def keep_lowered() -> None:
    """Write the names to the cache on disk, unless they are there."""
    if _kept() is None:
        disk.keep(_file(), json.dumps(sorted(_listed())).encode())


def _listed() -> frozenset[str]:
    # Late import: it loads MLIR, which a start from the caches does not need.
    from shardc.passes.fuse.lower.table import lowered_targets

    return lowered_targets()


def _kept() -> frozenset[str] | None:
    """Return the names on disk; None if there are none, or they do not parse."""
    found = disk.read(_file())
    if found is None:
        return None
    try:
        names = json.loads(found[1])
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        disk.discard(_file())
        return None
    return frozenset(names)


def _file() -> str:
    return f"targets-{hashlib.sha256(repr(code_versions()).encode()).hexdigest()[:32]}.json"
