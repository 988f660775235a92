"""All-reduces of NCCL in a node: vTrain's measurements against predictions (decision 76)."""

from __future__ import annotations

from statistics import median

import pytest

from shardc.cost.cluster.mapping import Placement
from shardc.cost.cluster.names import find_cluster
from shardc.cost.collectives.seconds import best

MEASURED_US = {  # MiB -> microseconds; vTrain (VIA-Research/vTrain, MIT), means of out of place and in place
    "a100_ar_2": {
        1: 44.7,
        5: 69.5,
        9: 91.6,
        13: 117.3,
        21: 162.7,
        33: 234.0,
        49: 327.2,
        65: 413.1,
        101: 618.8,
        201: 1171.2,
        301: 1712.2,
        401: 2248.3,
        601: 3301.5,
        801: 4333.8,
        1001: 5346.1,
    },
    "a100_ar_8": {
        1: 92.5,
        5: 96.3,
        9: 142.7,
        13: 191.2,
        21: 273.5,
        33: 361.8,
        49: 499.9,
        65: 587.9,
        101: 924.1,
        201: 1788.9,
        301: 2541.2,
        401: 3333.1,
        601: 4879.2,
        801: 6501.6,
        1001: 8017.8,
    },
    "v100_ar_4": {
        1: 66.5,
        5: 131.4,
        9: 196.3,
        13: 271.9,
        21: 418.4,
        33: 640.0,
        49: 930.2,
        65: 1243.3,
        101: 1876.4,
        201: 3711.9,
        301: 5564.4,
        401: 7425.9,
        601: 11098.0,
        801: 14781.5,
        1001: 18505.0,
    },
}
NODES = {"a100": "a100-80", "v100": "v100"}


@pytest.mark.parametrize("name", MEASURED_US)
def test_predictions_are_near_what_was_measured(name: str) -> None:
    """Within 2% at the median; within 10% at the knee, from 1 to 10 MB."""
    node, _, ways = name.split("_")
    links = Placement.of(find_cluster(NODES[node]), {"x": int(ways)}).links(["x"])
    errors = {
        size: abs(1e6 * best("all_reduce", links, size << 20).seconds / taken_us - 1)
        for size, taken_us in MEASURED_US[name].items()
    }
    assert median(errors.values()) < 0.02
    assert max(error for size, error in errors.items() if size < 10) < 0.10
    assert max(errors.values()) < 0.12


def test_rows_between_those_that_were_measured() -> None:
    """Of four A100 the rate lies between those of two and of eight, and grows with the bytes."""
    seconds = {}
    for ways in (2, 4, 8):
        links = Placement.of(find_cluster("a100-80"), {"x": ways}).links(["x"])
        seconds[ways] = best("all_reduce", links, 1e9).seconds / (2 * (ways - 1) / ways)
    assert seconds[8] < seconds[4] < seconds[2]
