"""Descriptions of clusters: errors name the wrong field and its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.cost.cluster.cluster import Cluster, Library
from shardc.cost.cluster.device import Device, Peaks
from shardc.cost.cluster.level import Level
from shardc.cost.cluster.names import find_cluster
from shardc.cost.cluster.reader import cluster_of
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.cluster import (
    BadClusterValue,
    LinksDoNotConnect,
    MissingClusterKey,
    TwoOfOneName,
    UnknownClusterKey,
    UnreadableCluster,
)

TEXT = """\
name: pair
devices:
  - name: chip
    memory_bytes: 16e9
    memory_bytes_s: 1e12
    launch_s: 3e-6
    flop_s: {f32: 1e13, bf16: 1e14}
levels:
  - name: wire
    topology: switch
    ways: 2
    bandwidth_bytes_s: 1e11
    latency_s: 0
library: {name: nccl, launch_s: 1e-5}
"""


def test_a_cluster_is_read() -> None:
    cluster = cluster_of(TEXT, "pair.yaml")
    chip, wire = cluster.devices[0], cluster.levels[0]
    assert (cluster.name, cluster.size, chip.memory_bytes, wire.bandwidth_bytes_s) == ("pair", 2, 16e9, 1e11)
    assert (chip.peak_flop_s("bf16"), chip.peak_flop_s("f16"), chip.peak_flop_s("f64")) == (1e14, 1e14, 1e13)
    assert cluster.host is None and cluster.device(1) is chip


def test_what_an_arch_says_is_not_said_twice() -> None:
    text = TEXT.replace("    memory_bytes_s: 1e12\n    launch_s: 3e-6\n", "    arch: sm_90\n")
    chip = cluster_of(text, "x").devices[0]
    assert chip.gpu is not None
    assert (chip.memory_bytes_s, chip.launch_s) == (chip.gpu.memory_bytes_s, chip.gpu.launch_s)
    assert chip.peak_flop_s("f16") == 1e14


WRONG = [
    ("ways: 2", "wais: 2", UnknownClusterKey, "level has no key 'wais'; did you mean 'ways'?", 11),
    ("    ways: 2\n", "", MissingClusterKey, "level has no 'ways'", 9),
    ("1e11", "0", BadClusterValue, "bandwidth_bytes_s of level is 0, not a number above 0", 12),
    ("1e11", "-2", BadClusterValue, "bandwidth_bytes_s of level is -2, not a number above 0", 12),
    ("1e11", "fast", BadClusterValue, "bandwidth_bytes_s of level is fast, not a number above 0", 12),
    ("1e11", ".inf", BadClusterValue, "bandwidth_bytes_s of level is .inf, not a number", 12),
    ("1e11", "nan", BadClusterValue, "bandwidth_bytes_s of level is nan, not a number", 12),
    ("ways: 2", "ways: 0", BadClusterValue, "ways of level is 0, not a whole number from 1", 11),
    ("ways: 2", "ways: 2.5", BadClusterValue, "ways of level is 2.5, not a whole number from 1", 11),
    (
        "latency_s: 0",
        "latency_s: -1e-6",
        BadClusterValue,
        "latency_s of level is -1e-6, not a number from",
        13,
    ),
    ("switch", "swich", BadClusterValue, "did you mean 'switch'?", 10),
    ("{f32: 1e13, bf16: 1e14}", "{bf16: 1e14, fp32: 1}", UnknownClusterKey, "no key 'fp32'; did you mean", 7),
    ("{f32: 1e13, bf16: 1e14}", "{bf16: 1e14}", MissingClusterKey, "flop_s of device 'chip' has no 'f32'", 3),
    ("    launch_s: 3e-6\n", "", MissingClusterKey, "device 'chip' has no 'launch_s'", 3),
    (
        "    launch_s: 3e-6\n",
        "    launch_s: 3e-6\n    products: [[1, 8, 8, 8, 4, 1e-6], [8, 8]]\n",
        BadClusterValue,
        "products of device 'chip' is another number, not 6 numbers for each product",
        7,
    ),
    ("topology: switch", "topology: torus", LinksDoNotConnect, "a torus needs dims", 9),
    ("topology: switch", "topology: torus\n    dims: [3, 1]", LinksDoNotConnect, "3 x 1 does not have 2", 11),
    ("topology: switch", "topology: mesh", LinksDoNotConnect, "a mesh needs wiring", 9),
    (
        "topology: switch",
        "topology: mesh\n    wiring: [[0, 1], [2, 0]]",
        LinksDoNotConnect,
        "links that only one end lists",
        11,
    ),
    (
        "topology: switch",
        "topology: mesh\n    wiring: [[0]]",
        LinksDoNotConnect,
        "not a square of at least 2",
        11,
    ),
    (
        "    memory_bytes: 16e9\n",
        "    memory_bytes: 16e9\n    count: 3\n",
        LinksDoNotConnect,
        "levels join 2 = 2 devices, but it has 3",
        2,
    ),
    (
        "  - name: wire",
        "  - {name: wire, ways: 1, bandwidth_bytes_s: 1, latency_s: 0}\n  - name: wire",
        TwoOfOneName,
        "two levels of cluster 'pair' are called 'wire'",
        1,
    ),
    ("devices:", "name: two\ndevices:", UnreadableCluster, "has the key 'name' of a cluster twice", 2),
    ("ways: 2", "ways: [2", UnreadableCluster, "is not YAML", 12),
    ("levels:", "levels: 3\nlevel:", BadClusterValue, "levels of cluster is 3, not a list", 8),
]


@pytest.mark.parametrize(("old", "new", "error", "says", "line"), WRONG)
def test_what_is_wrong_is_named_with_its_line(
    old: str, new: str, error: type[ShardcError], says: str, line: int
) -> None:
    assert old in TEXT
    with pytest.raises(error) as caught:
        cluster_of(TEXT.replace(old, new, 1), "pair.yaml")
    assert says in str(caught.value)
    assert f"at: pair.yaml:{line}" in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UnreadableCluster, match="does not exist"):
        find_cluster(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(UnreadableCluster, match="holds no keys"):
        find_cluster(tmp_path / "empty.yaml")
    (tmp_path / "pair.yaml").write_text(TEXT)
    assert find_cluster(str(tmp_path / "pair.yaml")).size == 2


def test_what_is_made_in_python_is_checked_too() -> None:
    with pytest.raises(BadClusterValue, match="bandwidth_bytes_s of level 'wire' is 0, not a number above 0"):
        Level("wire", 2, 0, 0.0)
    chip, wire, gloo = (
        Device("chip", 1e9, flop_s=Peaks(f32=1.0), memory_bytes_s=1.0, launch_s=0.0),
        Level("wire", 2, 1.0, 0.0),
        Library("gloo", 0.0),
    )
    with pytest.raises(LinksDoNotConnect, match="it has no levels"):
        Cluster("none", (chip,), (), gloo)
    with pytest.raises(TwoOfOneName, match="two devices of cluster 'twins' are called 'chip'"):
        Cluster("twins", (chip, chip), (wire,), gloo)


def test_kinds_of_devices_number_the_ranks() -> None:
    old = Device("old", 1e9, count=3, flop_s=Peaks(f32=1.0), memory_bytes_s=1.0, launch_s=0.0)
    new = Device("new", 1e9, count=1, flop_s=Peaks(f32=1.0), memory_bytes_s=1.0, launch_s=0.0)
    mixed = Cluster("mixed", (old, new), (Level("wire", 4, 1.0, 0.0),), Library("gloo", 0.0))
    assert [mixed.device(rank).name for rank in range(4)] == ["old", "old", "old", "new"]
    assert [kind.name for kind in mixed.used(3)] == ["old"]
    assert [kind.name for kind in mixed.used(4)] == ["old", "new"]
    with pytest.raises(IndexError):
        mixed.device(4)
