"""This machine as a cluster, from figures of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardc.cost.cluster.local import Figures, local_cluster, processes_of
from shardc.cost.cluster.mapping import Placement
from shardc.cost.cluster.names import is_local
from shardc.cost.collectives.seconds import best, seconds
from shardc.diagnostics.cluster import UnknownCluster

FIGURES = Figures(
    memory_bytes=16e9,
    f32_flop_s=1e11,
    bf16_flop_s=2e11,
    memory_bytes_s=1e10,
    launch_s=1e-6,
    message_s=5e-5,
    collective_s=2e-4,
    sent_bytes_s=1e9,
)


def test_processes_share_the_machine() -> None:
    one, four = local_cluster(FIGURES), local_cluster(FIGURES, 4)
    assert (one.size, four.size, four.name) == (1, 4, "local-4")
    assert four.devices[0].peak_flop_s("f32") == one.devices[0].peak_flop_s("f32") / 4
    assert four.devices[0].memory_bytes_s == one.devices[0].memory_bytes_s / 4


def test_processes_of_one_thread_use_all_cores_together() -> None:
    """Measured with one thread, and with two for all cores."""
    figures = replace(FIGURES, all_f32_flop_s=2e11, all_bf16_flop_s=4e11, all_memory_bytes_s=1.5e10)
    one, two, four = (local_cluster(figures, count).devices[0] for count in (1, 2, 4))
    assert [device.peak_flop_s("f32") for device in (one, two, four)] == [1e11, 1e11, 5e10]
    assert [device.memory_bytes_s for device in (one, two, four)] == [1e10, 7.5e9, 3.75e9]


def test_what_was_measured_is_predicted() -> None:
    """Two processes: an all-reduce of one number, and a long one."""
    links = Placement.of(local_cluster(FIGURES, 2), {"x": 2}).links(["x"])
    assert seconds("all_reduce", links, 4) == pytest.approx(FIGURES.collective_s)
    assert seconds("all_reduce", links, 1e9) == pytest.approx(1.0, rel=1e-3)


def test_processes_wait_for_each_other_on_cores_that_they_share() -> None:
    crowded = replace(FIGURES, cores=2.0, crowded_s=1e-3)
    latencies = [local_cluster(crowded, count).levels[0].latency_s for count in (1, 2, 4, 8)]
    assert latencies == [FIGURES.message_s, FIGURES.message_s, 1e-3, 3e-3]
    links = Placement.of(local_cluster(crowded, 4), {"x": 4}).links(["x"])
    assert seconds("all_reduce", links, 1e7) > seconds("all_reduce", links, 5e6) > 6e-3
    assert best("all_reduce", links, 5e6).algorithm == "ring"


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_few_bytes_are_sent_to_all_at_once(kind: str) -> None:
    """As the runtime does over Gloo: one step, however many processes there are."""
    crowded = replace(FIGURES, cores=2.0, crowded_s=1e-3)
    links = Placement.of(local_cluster(crowded, 4), {"x": 4}).links(["x"])
    assert best(kind, links, 4e3).algorithm == "direct"
    assert seconds(kind, links, 4e3) == pytest.approx(2.7e-3, rel=0.1)


def test_names() -> None:
    assert [processes_of(name) for name in ("local", "local-1", "local-12")] == [1, 1, 12]
    assert is_local("local-4") and not is_local("locale")
    for name in ("local-", "local-x", "local-0", "local-99999"):
        with pytest.raises(UnknownCluster, match=f"'{name}'"):
            processes_of(name)
