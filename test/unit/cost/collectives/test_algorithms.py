"""Seconds of collectives: values by formula, monotonic growth, and the fastest algorithm by size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardc.cost.cluster.level import Level
from shardc.cost.cluster.mapping import Links, Placement, Span
from shardc.cost.cluster.names import find_cluster, ready_names
from shardc.cost.collectives.algorithms import ALGORITHMS
from shardc.cost.collectives.seconds import best, seconds
from shardc.diagnostics.cluster import UnknownAlgorithm

MB = 1e6
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "exchange", "broadcast")


def switch(ways: int, rate: float = 1e9, latency_s: float = 0.0) -> Links:
    return Links((Span(Level("switch", ways, rate, latency_s), ways),))


def two(inner: int, outer: int, *, outer_rate: float, latency_s: float = 0.0) -> Links:
    """Nodes of ``inner`` devices at 100 GB/s, ``outer`` of them, each device with its own adapter."""
    near, far = Level("near", inner, 1e11, latency_s / 10), Level("far", outer, outer_rate, latency_s)
    return Links((Span(near, inner), Span(far, outer, inner)))


@pytest.mark.parametrize("ways", [2, 3, 8, 64])
def test_long_rings_send_at_the_rate_of_the_link(ways: int) -> None:
    links, part = switch(ways), (ways - 1) / ways
    assert seconds("all_reduce", links, MB, "ring") == pytest.approx(2 * part * MB / 1e9)
    assert seconds("reduce_scatter", links, MB, "ring") == pytest.approx(part * MB / 1e9)
    assert seconds("all_gather", links, MB / ways, "ring") == pytest.approx(part * MB / 1e9)
    assert seconds("all_to_all", links, MB) == pytest.approx(part * MB / 1e9)
    assert seconds("permute", links, MB) == pytest.approx(MB / 1e9)


@pytest.mark.parametrize("ways", [2, 4, 8])
def test_real_links_tend_to_the_same(ways: int) -> None:
    """On an A100 node latency, ramp and launch are 5% of an all-reduce of 16 GB, and all of one of 1 kB."""
    links = Placement.of(find_cluster("a100-80"), {"x": ways}).links(["x"])
    rate = links.spans[0].member_bytes_s
    floor = 2 * (ways - 1) / ways * 16e9 / rate
    assert floor < seconds("all_reduce", links, 16e9, "ring") < 1.25 * floor
    assert seconds("all_reduce", links, 1e3) == pytest.approx(seconds("all_reduce", links, 1e4), rel=0.01)


def test_short_messages_take_the_steps_of_the_algorithm() -> None:
    links = switch(16, latency_s=1e-3)
    assert seconds("all_reduce", links, 8, "ring") == pytest.approx(30e-3)
    assert seconds("all_gather", links, 8, "ring") == pytest.approx(15e-3)
    assert seconds("all_reduce", links, 8, "halving-doubling") == pytest.approx(8e-3, rel=1e-3)
    assert seconds("all_to_all", links, 8) == pytest.approx(15e-3)
    assert seconds("broadcast", links, 8, "ring") == pytest.approx(15e-3)


def test_halving_doubling_sends_what_a_ring_does() -> None:
    ring, halving = (seconds("all_reduce", switch(8), MB, name) for name in ("ring", "halving-doubling"))
    assert halving == pytest.approx(ring)
    assert best("all_reduce", switch(8, latency_s=1e-3), MB).algorithm == "halving-doubling"
    assert best("all_reduce", switch(6, latency_s=1e-3), MB).algorithm == "ring"


def test_two_levels_beat_a_ring_where_outer_steps_are_slow() -> None:
    """Of 64 nodes a ring takes 2 x 63 outer steps and 2 x 448 inner ones; two levels 2 x 63 and 2 x 7."""
    links = two(8, 64, outer_rate=1e9, latency_s=1e-5)
    ring, two_level = (seconds("all_reduce", links, 1e4, name) for name in ("ring", "two-level"))
    assert ring == pytest.approx(2 * (63 * 1e-5 + 448 * 1e-6))
    assert two_level == pytest.approx(2 * (63 * 1e-5 + 7 * 1e-6))
    one_rail = replace(
        links, spans=(links.spans[0], replace(links.spans[1], level=Level("far", 64, 1e9, 0.0, sharers=8)))
    )
    scattered = seconds("all_reduce", one_rail, 1e9, "two-level")
    inner, outer = 2 * 7 / 8 * 1e9 / 1e11, 2 * 63 / 64 * 1e9 / 8 / (1e9 / 8)
    assert scattered == pytest.approx(inner + outer, rel=1e-3)


def test_a_tree_beats_a_ring_of_many_nodes_where_messages_are_short() -> None:
    pod = Placement.of(find_cluster("h100-8x128"), {"data": 1024}).links(["data"])
    assert best("all_reduce", pod, 1e5).algorithm == "tree"
    node = Placement.of(find_cluster("h100-8"), {"data": 8}).links(["data"])
    assert best("all_reduce", node, 1e8).algorithm == "ring"


@pytest.mark.parametrize(("a", "b"), [(4, 4), (8, 2), (2, 4)])
def test_a_torus_uses_all_its_links(a: int, b: int) -> None:
    """Half of the tensor goes along x first, half along y (Chan et al. 2007, 7.2; both directions)."""
    level = Level("ici", a * b, 1e9, 0.0, "torus", dims=(a, b))
    x, y = replace(level, ways=a, dims=(a,)), replace(level, ways=b, dims=(b,))
    links = Links((Span(x, a), Span(y, b, a)))
    rx, ry = (span.member_bytes_s for span in links.spans)
    half = MB / 2
    first = max((a - 1) / a * half / rx, (b - 1) / b * half / ry)
    second = max((b - 1) / b * half / a / ry, (a - 1) / a * half / b / rx)
    assert seconds("reduce_scatter", links, MB, "torus") == pytest.approx(first + second)
    assert seconds("all_reduce", links, MB, "torus") == pytest.approx(2 * (first + second))
    assert seconds("all_gather", links, MB / (a * b), "torus") == pytest.approx(first + second)
    if a == b:
        n = a * b
        assert seconds("all_reduce", links, MB, "torus") == pytest.approx((n - 1) / n * MB / rx)
        assert best("all_reduce", links, MB).algorithm == "torus"


@pytest.mark.parametrize("name", ["a100-80-8x4", "v100-8x4", "mi300x-8x4", "cpu-8x4", "gb200-8x4"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [("data",), ("tensor",), ("data", "tensor")])
def test_more_bytes_take_longer(name: str, kind: str, axes: tuple[str, ...]) -> None:
    links = Placement.of(find_cluster(name), {"data": 4, "tensor": 8}).links(axes)
    taken = [best(kind, links, 2.0**power).seconds for power in range(40)]
    assert taken == sorted(taken) and 0 < taken[0] < taken[-1]


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_groups_that_share_an_adapter_take_twice_as_long(kind: str) -> None:
    shared, own = (
        Placement.of(find_cluster(name), {"data": 8, "tensor": 8}).links(["data"])
        for name in ("a100-80-hdr4-8x8", "a100-80-8x8")
    )
    launch_s, size = own.launch_s, 1e9
    slow, fast = (best(kind, links, size).seconds - launch_s for links in (shared, own))
    assert slow == pytest.approx(2 * fast)


def test_reduce_scatter_and_all_gather_are_an_all_reduce_with_one_launch() -> None:
    links = Placement.of(find_cluster("a100-80"), {"x": 8}).links(["x"])
    whole = seconds("all_reduce", links, 1e9, "ring")
    parts = seconds("reduce_scatter", links, 1e9, "ring") + seconds("all_gather", links, 1e9 / 8, "ring")
    assert whole - links.launch_s == pytest.approx(parts - 2 * links.launch_s, rel=0.05)


def test_a_group_of_one_sends_nothing() -> None:
    assert seconds("all_reduce", Links((), 1e-5), MB) == 0.0
    assert best("all_reduce", Links((), 1e-5), MB).seconds == 0.0


def test_only_what_the_library_has_is_chosen() -> None:
    links = switch(8, latency_s=1e-3)
    assert best("all_reduce", replace(links, algorithms=("ring",)), MB).algorithm == "ring"
    for name in ready_names():
        cluster = find_cluster(name)
        links = Placement.of(cluster, {"x": cluster.size}).links(["x"])
        for kind in KINDS:
            assert best(kind, links, MB).algorithm in cluster.library.algorithms


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("all_reduce", "rings", "all_reduce has no algorithm 'rings' here; did you mean 'ring'?"),
        ("all_to_all", "ring", "all_to_all has no algorithm 'ring' here"),
        ("all_reduce", "torus", "algorithms are ring, halving-doubling"),
        ("all_reduce", "two-level", "algorithms are ring, halving-doubling"),
    ],
)
def test_an_algorithm_that_cannot_be(kind: str, name: str, says: str) -> None:
    with pytest.raises(UnknownAlgorithm) as caught:
        seconds(kind, switch(8), MB, name)
    assert says in str(caught.value)


def test_every_kind_has_an_algorithm() -> None:
    assert {kind for _, kinds in ALGORITHMS.values() for kind in kinds} == {*KINDS}
