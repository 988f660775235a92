"""``shares=``: accepted forms, stored values, values from a cluster, and errors."""

from __future__ import annotations

import pytest

from shardc.cost.cluster.cluster import Cluster, Library
from shardc.cost.cluster.device import Device
from shardc.cost.cluster.level import Level
from shardc.diagnostics.passes.shares import BadShares, SharesUnsupported
from shardc.options.parallelism import Parallelism
from shardc.options.shares import read_shares, shares_by_speed

MESH = {"data": 2, "tensor": 2}


def test_shares_are_kept_in_lowest_terms() -> None:
    assert Parallelism(MESH, shares={"data": [6, 2]}).shares == {"data": (3, 1)}
    assert Parallelism(MESH, shares={"data": "3:1"}).shares == {"data": (3, 1)}
    assert Parallelism(MESH, shares=read_shares("data=3:1")).shares == {"data": (3, 1)}


def test_equal_shares_are_none() -> None:
    assert Parallelism(MESH, shares={"data": [2, 2]}).shares is None


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"data": [3, 0]}, "whole numbers from 1"),
        ({"data": [3, -1]}, "whole numbers from 1"),
        ({"data": [1.5, 1]}, "whole numbers from 1"),
        ({"data": []}, "whole numbers from 1"),
        ({"data": [3, 1, 1]}, "such as 3:1"),
        ({"data": [3]}, "such as 3:1"),
        ({"dat": [3, 1]}, "did you mean 'data'?"),
        ({"data": "cluster"}, "pass cluster="),
        ({"data": "much"}, "whole numbers from 1"),
    ],
)
def test_shares_that_cannot_be(shares: dict[str, object], words: str) -> None:
    with pytest.raises(BadShares) as caught:
        Parallelism(MESH, shares=shares)
    assert words in caught.value.render()


def test_a_flag_that_cannot_be_read() -> None:
    for text in ("data", "data=3:1,data=1:3", "data="):
        with pytest.raises(BadShares, match="AXIS=WEIGHT"):
            read_shares(text)


@pytest.mark.parametrize(
    ("mesh", "options", "words"),
    [
        (MESH, {"per_micro_batch": True, "micro_batches": 2}, "per_micro_batch=True"),
        ({"data": 2, "pipe": 2}, {"plan": "data*pipeline", "micro_batches": 2}, "speeds="),
        (MESH, {"shares": {"data": [3, 1], "tensor": [2, 1]}}, "those of tensor"),
    ],
)
def test_what_does_not_go_with_shares(mesh: dict[str, int], options: dict[str, object], words: str) -> None:
    with pytest.raises(SharesUnsupported) as caught:
        Parallelism(mesh, **{"shares": {"data": [3, 1]}, **options})
    assert words in caught.value.render()


def mixed() -> Cluster:
    """Two H100 (989 TFLOP/s) and two A100 (312)."""
    kinds = [Device(name, 80e9, arch, 2) for name, arch in (("h100", "sm_90"), ("a100", "sm_80"))]
    return Cluster(
        "mixed",
        tuple(kinds),
        (Level("link", 4, bandwidth_bytes_s=25e9, latency_s=1e-5),),
        Library("nccl", 40e-6),
    )


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [({"data": 4}, (3, 3, 1, 1)), ({"data": 2, "tensor": 2}, (3, 1)), ({"tensor": 2, "data": 2}, None)],
)
def test_shares_of_a_cluster_of_two_kinds(mesh: dict[str, int], expected: tuple[int, ...] | None) -> None:
    """With ``data`` innermost both places have an A100, which counts."""
    found = Parallelism(mesh, shares={"data": "cluster"}, cluster=mixed()).shares
    assert found == (expected and {"data": expected})


def test_speeds_become_halves_of_the_slowest() -> None:
    assert shares_by_speed([989.0, 312.0]) == (3, 1)
    assert shares_by_speed([1.4, 1.0]) == (3, 2)
    assert shares_by_speed([1.1, 1.0, 2.0]) == (1, 1, 2)
