"""Clusters by name: known nodes, any number of them, or a file.

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
"""Name of this machine, measured: see ``compiler/local_cluster.py``."""
_SIZES = re.compile(r"(?P<node>.+)-(?P<sizes>\d+(x\d+)*)")


@cache
def ready_names() -> tuple[str, ...]:
    """Return the names of known nodes."""
    return tuple(sorted(path.stem for path in READY.glob("*.yaml")))


def node_of(name: str) -> str:
    """Return the node in a cluster's name: ``h100`` for ``h100-8x64``; empty if it is not known."""
    match = _SIZES.fullmatch(name)
    found = [node for node in (name, match["node"] if match else "") if node in ready_names()]
    return found[0] if found else ""


def is_file(name: str | Path) -> bool:
    """Return whether a cluster is given by the path of its file."""
    return isinstance(name, Path) or name.endswith((".yaml", ".yml"))


def is_local(name: str | Path | Cluster) -> bool:
    """Return whether it is this machine: ``local``, or ``local-4`` for 4 processes."""
    return isinstance(name, str) and (name == LOCAL or name.startswith(f"{LOCAL}-"))


def find_cluster(name: str | Path | Cluster) -> Cluster:
    """Return the cluster of a name or a file, except ``local`` (see ``compiler/local_cluster.py``).

    Raises UnknownCluster, BadClusterSize, and what :func:`read_cluster` raises.
    """
    if isinstance(name, Cluster):
        return name
    return read_cluster(Path(name)) if is_file(name) else _named(str(name))


@cache
def _named(name: str) -> Cluster:
    node, match = node_of(name), _SIZES.fullmatch(name)
    if not node:
        known = ready_names()
        near = did_you_mean(match["node"] if match else name, [*known, LOCAL])
        raise UnknownCluster(name=name, nearest=near, known=", ".join(known))
    cluster = read_cluster(READY / f"{node}.yaml")
    if name == node or match is None:
        return cluster
    return cluster.resized(map(int, match["sizes"].split("x")), name)
