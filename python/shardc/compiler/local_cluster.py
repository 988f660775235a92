"""The cluster of a name, a file, or this machine, which is measured once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

from shardc.cache import disk
from shardc.compiler.probe import machine, measure
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.local import Figures, local_cluster, processes_of
from shardc.cost.cluster.names import find_cluster, is_local


def cluster_of(given: str | Path | Cluster) -> Cluster:
    """The cluster that a user gave. ``local-4``: this machine, shared by 4 processes.

    Raises UnknownCluster, BadClusterSize, and what reading a file does.
    """
    if isinstance(given, str) and is_local(given):
        return local_cluster(figures(), processes_of(given))
    return find_cluster(given)


def with_devices(cluster: Cluster, devices: int | None) -> Cluster:
    """The same cluster with so many of its devices; all if None. Raises BadClusterSize."""
    if devices is None or devices == cluster.size:
        return cluster
    if is_local(cluster.name):
        return local_cluster(figures(), devices)
    return cluster.shrunk(devices)


@cache
def figures() -> Figures:
    """What was measured on this machine: some 10 seconds the first time, then read from the cache. Processes
    that want it at the same time wait for the one that measures, so all have the same figures.
    """
    name = f"cluster-{hashlib.sha256(repr(machine()).encode()).hexdigest()[:32]}.json"
    if (found := _kept(name)) is not None:
        return found
    with disk.alone(name):
        found = _kept(name)
        if found is None:
            found = measure()
            disk.keep(name, json.dumps(asdict(found)).encode())
    return found


def _kept(name: str) -> Figures | None:
    entry = disk.read(name)
    return None if entry is None else Figures(**json.loads(entry[1]))
