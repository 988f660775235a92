"""Clusters by name, and the origin of every figure of those that are ready."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardc.cost.cluster.mapping import Placement
from shardc.cost.cluster.names import READY, find_cluster, ready_names
from shardc.cost.cluster.reader import cluster_of
from shardc.cost.machine import GPUS
from shardc.diagnostics.cluster import BadClusterSize, UnknownCluster

ORIGIN = re.compile(r"# (sheet|measured|published|assumed): .{5,}")


def test_those_that_are_ready() -> None:
    wanted = {"v100", "a100-40", "a100-80", "h100", "h200", "b200", "gb200", "mi300x", "cpu"}
    assert wanted <= {*ready_names()}
    assert find_cluster("gb200").size == 72


@pytest.mark.parametrize("name", ready_names())
def test_every_figure_says_where_it_is_from(name: str) -> None:
    """But for counts of devices, which are the description itself."""
    is_row = False
    for line in (READY / f"{name}.yaml").read_text().splitlines():
        key, _, rest = line.strip().removeprefix("- ").partition(":")
        is_row = line.strip().startswith("- [") and is_row  # of a wiring, which says it above
        if (
            not line.startswith("#")
            and not is_row
            and re.match(r" *[\d.\[]", rest)
            and key not in ("ways", "most", "algorithms")
        ):
            assert ORIGIN.search(line), line
        if key == "wiring":
            assert ORIGIN.search(line), line
            is_row = True


@pytest.mark.parametrize("name", ready_names())
def test_a_file_has_the_name_of_its_cluster(name: str) -> None:
    cluster = find_cluster(name)
    assert cluster.name == name
    arch = cluster.devices[0].arch
    assert not arch or arch in GPUS


def test_nodes_by_number() -> None:
    pod = find_cluster("h100-8x64")
    assert (pod.name, pod.size, [level.ways for level in pod.levels]) == ("h100-8x64", 512, [8, 64])
    assert (find_cluster("h100").size, find_cluster("h100-4").size, find_cluster("h100-4x2").size) == (
        8,
        4,
        8,
    )
    assert (
        find_cluster("a100-40-8x2").devices[0].memory_bytes < find_cluster("a100-80").devices[0].memory_bytes
    )
    assert find_cluster("gb200-72x8").size == 576


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("h10", "there is no cluster 'h10'; did you mean 'h100'?"),
        ("h1000-8x4", "did you mean 'h100'?"),
        ("h100-8x", "there is no cluster 'h100-8x'; did you mean 'h100'?"),
        ("loca", "did you mean 'local'?"),
        ("", "there is no cluster ''"),
    ],
)
def test_a_name_that_there_is_not(name: str, says: str) -> None:
    with pytest.raises(UnknownCluster) as caught:
        find_cluster(name)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("h100-16x4", "nvlink joins 1 to 8, not 16"),
        ("h100-0x4", "nvlink joins 1 to 8, not 0"),
        ("h100-8x4x2", "h100 has 2 levels of links, not 3"),
        ("v100-9", "nvlink joins 1 to 8, not 9"),
    ],
)
def test_a_size_that_cannot_be(name: str, says: str) -> None:
    with pytest.raises(BadClusterSize) as caught:
        find_cluster(name)
    assert says in str(caught.value) and "x4, which has 32 devices" in str(caught.value)


def test_the_guides_cluster() -> None:
    """A level for each of node, site and sites; 128 devices of a site share its line to the other one."""
    text = (Path(__file__).parents[4] / "docs" / "guide" / "clusters.md").read_text()
    sites = cluster_of(text.partition("```yaml\n")[2].partition("```")[0], "clusters.md")
    links = Placement.of(sites, {"data": 32, "tensor": 8}).links(["data"])
    assert [(span.ways, span.sharing, span.member_bytes_s) for span in links.spans] == [
        (16, 2, 12.5e9),
        (2, 8, 12.5e9 / 128),
    ]
