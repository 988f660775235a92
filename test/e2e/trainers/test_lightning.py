"""``ShardcStrategy`` on several processes against plain Lightning on one device."""

from __future__ import annotations

import json

import pytest

WORKER = "lightning_worker.py"


def check_equal(plain: dict, sharded: dict) -> None:
    assert plain.keys() == sharded.keys() and len(plain) == 8
    for name, values in plain.items():
        assert sharded[name] == pytest.approx(values, rel=2e-5, abs=2e-5), name


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("plan", ["zero3", "data"])
def test_fit_is_that_of_one_device(plan: str, trained) -> None:
    settings = json.dumps({"gradient_clip_val": 0.3})
    plain = trained(WORKER, 1, "null", settings)
    sharded = trained(WORKER, 2, json.dumps({"mesh": {"data": 2}, "plan": plan}), settings)
    assert len(plain["losses"]) == 18 and len(plain["validated"]) == 2 * 4 and len(plain["sums"]) == 11
    check_equal(plain, sharded)


@pytest.mark.processes
@pytest.mark.slow
def test_a_checkpoint_goes_on_where_it_was_saved(trained) -> None:
    """Saved after the first epoch on two processes; plain Lightning resumes from the same file."""
    options = json.dumps({"mesh": {"data": 2}, "plan": "zero3"})
    whole = trained(WORKER, 1, "null", "{}")
    first = trained(WORKER, 2, options, json.dumps({"max_epochs": 1}))
    assert first["losses"] == pytest.approx(whole["losses"][:6], rel=2e-5)
    resume = json.dumps({"resume": "kept-written-1/epoch=0.ckpt"})
    plain = trained(WORKER, 1, "null", resume)
    resumed = trained(WORKER, 2, options, resume)
    assert len(plain["losses"]) == 12
    check_equal(plain, resumed)
