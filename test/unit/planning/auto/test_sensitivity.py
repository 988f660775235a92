"""Changes under which a search's answer changes: the searched changes, and their report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.planning import SizesOfScript
from shardc.passes.search.clock import INTERRUPTED
from shardc.planning.auto.searches import Searches
from shardc.planning.auto.sensitivity import CHANGES, sensitivity_json, sensitivity_of, sensitivity_text
from shardc.planning.candidates import Candidate
from shardc.planning.what_if import WhatIf

PLAN, OTHER = Candidate({"data": 8}, "auto"), Candidate({"data": 8}, "auto", 4)


@dataclass(frozen=True)
class Time:
    seconds: float


@dataclass(frozen=True)
class DrawnPrice:
    """A plan that takes as long as its links say, and is both what is priced and its price."""

    candidate: Candidate
    cluster: Cluster
    needed_bytes: float = 10e9

    @property
    def priced(self) -> DrawnPrice:
        return self

    def on(self, cluster: Cluster) -> DrawnPrice:
        return replace(self, cluster=cluster)

    @property
    def time(self) -> Time:
        return Time(1e12 / self.cluster.levels[0].bandwidth_bytes_s)

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.cluster.devices[0].memory_bytes


@dataclass(frozen=True)
class Picked:
    priced: DrawnPrice


@dataclass
class Drawn:
    """Searches that pick the same plan, unless memory is short."""

    cluster: Cluster
    is_interrupted: bool = False

    @property
    def priced(self) -> DrawnPrice:
        return DrawnPrice(PLAN, self.cluster)

    def best(self, within: float = 1.0) -> Picked:
        return Picked(DrawnPrice(OTHER if within < 1 else PLAN, self.cluster, 3e9))


def searched(searches: Drawn, after: Any) -> Any:
    picked = Picked(DrawnPrice(PLAN, searches.cluster, 70e9))
    return sensitivity_of(cast("Searches", searches), cast("Any", picked), after)


def test_each_change_is_searched_and_compared() -> None:
    cluster = find_cluster("h100")

    def after(change: WhatIf) -> Drawn:
        if change.name == "batch":
            raise SizesOfScript(option="batch", where="train.py")
        return Drawn(change.cluster(cluster))

    found = searched(Drawn(cluster), after)
    rows = {row["change"]: row for row in sensitivity_json(found)["changes"]}
    assert list(rows) == [*CHANGES]
    seconds = [rows[name]["step_s"] for name in ("links=0.5x", "links=2x")]
    assert seconds[0] == pytest.approx(4 * seconds[1])
    assert rows["memory=0.5x"]["is_same"] is False
    assert rows["memory=0.5x"]["kept_fits"] is False
    assert rows["memory=2x"]["is_same"] is True
    assert rows["batch=2x"]["step_s"] is None
    assert "train.py" not in rows["batch=2x"]["problem"]
    text = sensitivity_text(found)
    assert text[0].endswith("another plan is picked with memory=0.5x")
    assert "does not fit" in "\n".join(text)
    assert "no answer: " in text[-1]


def test_an_interrupt_leaves_out_the_rest() -> None:
    cluster = find_cluster("h100")
    found = searched(Drawn(cluster), lambda change: Drawn(change.cluster(cluster), is_interrupted=True))
    problems = [row.problem for row in found.rows]
    assert problems == ["", *[INTERRUPTED] * (len(CHANGES) - 1)]
