"""Plans that are searched: equal to eager training, with the work cut where links are fast enough."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from models import TRAININGS
from training import captured, check_equal, trained

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import find_cluster


@cache
def slow() -> Cluster:
    """A cluster on which it pays to cut all that can be: its devices are slow, and its links are not."""
    cluster = find_cluster("cpu")
    device = cluster.devices[0]
    cores = replace(device, flop_s=replace(device.flop_s, f32=1e6), memory_bytes_s=1e7, launch_s=0.0)
    return replace(cluster, devices=(cores,))


MESHES = {"4": {"data": 4}, "2x2": {"data": 2, "tensor": 2}}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", TRAININGS)
def test_equals_eager_training(name: str, mesh: str) -> None:
    step = captured(name)
    compiled = step.compile(MESHES[mesh], "auto", cluster=slow())
    check_equal(step, compiled, TRAININGS[name], trained(name))
