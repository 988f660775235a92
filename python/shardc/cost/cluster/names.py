"""Clusters by name: nodes that are known, any number of them, or a file.

A name is a node (``h100``), part of one (``h100-4``), or nodes (``h100-8x64``: 64 nodes of 8 devices).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.reader import read_cluster
from shardc.diagnostics.cluster import UnknownCluster
from shardc.diagnostics.text import did_you_mean

READY = Path(__file__).parent / "ready"
LOCAL = "local"
"""This machine, measured: see ``compiler/local_cluster.py``."""
_SIZES = re.compile(r"(?P<node>.+)-(?P<sizes>\d+(x\d+)*)")


def ready_names() -> tuple[str, ...]:
    """The nodes that are known."""
    return tuple(sorted(path.stem for path in READY.glob("*.yaml")))


def is_file(name: str | Path) -> bool:
    """Whether a cluster is given by the path of its file."""
    return isinstance(name, Path) or name.endswith((".yaml", ".yml"))


def is_local(name: str | Path | Cluster) -> bool:
    """Whether it is this machine: ``local``, or ``local-4`` of 4 processes."""
    return isinstance(name, str) and (name == LOCAL or name.startswith(f"{LOCAL}-"))


def find_cluster(name: str | Path | Cluster) -> Cluster:
    """The cluster of a name or a file. ``local`` is found by ``compiler/local_cluster.py``.

    Raises UnknownCluster, BadClusterSize, and what :func:`read_cluster` raises.
    """
    if isinstance(name, Cluster):
        return name
    return read_cluster(Path(name)) if is_file(name) else _named(str(name))


@cache
def _named(name: str) -> Cluster:
    known = ready_names()
    if name in known:
        return read_cluster(READY / f"{name}.yaml")
    match = _SIZES.fullmatch(name)
    if match is None or match["node"] not in known:
        near = did_you_mean(match["node"] if match else name, [*known, LOCAL])
        raise UnknownCluster(name=name, nearest=near, known=", ".join(known))
    sizes = [int(size) for size in match["sizes"].split("x")]
    return read_cluster(READY / f"{match['node']}.yaml").resized(sizes, name)
