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


@pytest.mark.processes
@pytest.mark.slow
def test_a_checkpoint_goes_on(trained, tmp_path) -> None:
    """One written by two processes is Lightning's own: one device and two processes go on from it."""
    sharded = json.dumps({"mesh": {"data": 2}, "plan": "zero2"})
    plain = trained(WORKER, 1, "null", "{}")
    trained(WORKER, 2, sharded, json.dumps({"max_epochs": 2}))
    [kept] = tmp_path.glob("kept-written-1/epoch=1.ckpt")
    for processes, options in ((2, sharded), (1, "null")):
        resumed = trained(WORKER, processes, options, json.dumps({"resume": str(kept)}))
        assert resumed["validated"][-1:] == pytest.approx(plain["validated"][-1:], rel=0.1)
        assert len(resumed["losses"]) == 6
