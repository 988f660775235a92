"""``ShardcStrategy`` on several processes against plain Lightning on one device."""

from __future__ import annotations

import json

import pytest

WORKER = "lightning_worker.py"


def check_equal(plain: dict, sharded: dict) -> None:
    assert plain.keys() == sharded.keys() and len(plain) == 7
    for name, values in plain.items():
        assert sharded[name] == pytest.approx(values, rel=2e-5, abs=2e-5), name


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("plan", ["zero3", "data"])
def test_fit_is_that_of_one_device(plan: str, trained) -> None:
    settings = json.dumps({"gradient_clip_val": 0.3})
    plain = trained(WORKER, 1, "null", settings)
    sharded = trained(WORKER, 2, json.dumps({"mesh": {"data": 2}, "plan": plan}), settings)
    assert len(plain["losses"]) == 18 and len(plain["validated"]) == 4
    check_equal(plain, sharded)
