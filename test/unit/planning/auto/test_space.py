"""Choices of a plan search besides shardings: all devices are used, and batches divide."""

from __future__ import annotations

from math import prod

from shardc.cost.cluster.names import find_cluster
from shardc.planning.auto.space import Choice, choices


def test_each_choice_uses_all_devices_and_divides_the_batch() -> None:
    found = list(choices(find_cluster("h100-8x8"), samples=48, layers=32))
    assert {choice.stages for choice in found} == {1, 2, 4, 8, 16, 32}
    for choice in found:
        assert prod(choice.mesh.values()) == 64
        assert 48 % choice.micro_batches == 0
        assert choice.stages == 1 or choice.micro_batches >= choice.stages
        assert choice.candidate.plan == ("auto" if choice.stages == 1 else "pipeline*auto")


def test_what_samples_do_not_divide_gets_an_axis_of_its_own() -> None:
    cluster = find_cluster("h100-8x8")
    meshes = {
        c.micro_batches: c.mesh for c in choices(cluster, samples=16, layers=1) if c.recompute == "none"
    }
    assert meshes[1] == meshes[2] == {"infiniband": 8, "nvlink": 8}
    assert meshes[4] == {"data": 4, "infiniband": 2, "nvlink": 8}


def test_a_user_decides_parts_of_it() -> None:
    given = list(choices(find_cluster("h100-8x8"), samples=64, layers=4, policies=["full"], parts=8))
    assert {(choice.recompute, choice.micro_batches) for choice in given} == {("full", 8)}
    assert (
        Choice(1, 8, (("data", 64),), "full").candidate.text
        == "auto on data 64, 8 micro-batches, recompute full"
    )
