"""Finds a cluster by name, file or, for this machine, by a measurement that runs once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

from shardc.cache import disk
from shardc.compiler.probe import conditions, measure
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.local import Figures, local_cluster, processes_of
from shardc.cost.cluster.names import find_cluster, is_local


def cluster_of(given: str | Path | Cluster) -> Cluster:
    """Return the cluster that a user named. ``local-4`` is this machine, shared by 4 processes.

    Raises UnknownCluster, BadClusterSize, and the errors of reading a file.
    """
    if isinstance(given, str) and is_local(given):
        return local_cluster(figures(), processes_of(given))
    return find_cluster(given)


def with_devices(cluster: Cluster, devices: int | None) -> Cluster:
    """Return the cluster reduced to ``devices`` devices; None keeps all. Raises BadClusterSize."""
    if devices is None or devices == cluster.size:
        return cluster
    if is_local(cluster.name):
        return local_cluster(figures(), devices)
    return cluster.shrunk(devices)


@cache
def figures() -> Figures:
    """Return the rates measured on this machine: about 10 s the first time, later read from the cache.

    Concurrent processes wait for the one that measures, so all use the same figures.
    """
    name = f"cluster-{hashlib.sha256(repr(conditions()).encode()).hexdigest()[:32]}.json"
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
