"""A few configurations for many shapes, with the loss of the worst."""

from __future__ import annotations

import pytest

from shardc.tuner.database import cover as module
from shardc.tuner.database.cover import cover

RATIOS = {
    "small": {"a": 0.80, "b": 0.82, "c": 1.00},
    "middle": {"a": 0.90, "b": 0.82, "c": 0.80},
    "large": {"b": 0.72, "c": 0.70},
}


def test_the_fewest_that_are_within_the_bound():
    found = cover(RATIOS, bound=1.05)
    assert found.points == ("b",) and set(found.choice.values()) == {"b"}
    assert found.worst == pytest.approx(0.72 / 0.70) and found.worst_task == "large"


def test_each_task_takes_the_best_of_them():
    found = cover(RATIOS, bound=1.0)
    assert set(found.points) == {"a", "c"} and found.worst == 1.0
    assert found.choice == {"small": "a", "middle": "c", "large": "c"}


def test_as_few_as_are_allowed_with_the_smallest_worst_loss():
    assert cover(RATIOS, bound=1.0, most=1).points == ("b",)


def test_greedily_where_there_are_too_many_sets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "EXHAUSTIVE", 0)
    tasks = {n: {m: 1 + abs(n - m) / 10 for m in range(20)} for n in range(20)}
    found = cover(tasks, bound=1.15)
    assert found.worst <= 1.15 and all(found.choice[n] in found.points for n in tasks)


def test_a_task_without_a_measured_point_is_refused():
    with pytest.raises(ValueError, match="measured"):
        cover({"small": {}})
