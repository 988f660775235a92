"""``ShardedTrainer`` on several processes against ``Trainer`` on one, with the real packages."""

from __future__ import annotations

import json

import pytest

WORKER = "trainer_worker.py"
BASE = {"num_train_epochs": 2, "learning_rate": 3e-2, "weight_decay": 0.1, "lr_scheduler_type": "cosine"}
DATA = {"mesh": {"data": 2}, "plan": "zero3"}
BOTH = {"mesh": {"data": 2, "tensor": 2}, "plan": "zero3*tensor"}


def both(trained, shard: dict, arguments: dict, more: dict | None = None, parts: int = 2) -> tuple:
    """What the plain Trainer comes to on the global batch, and the sharded one on a part of it each."""
    processes, rest = 4 if len(shard["mesh"]) > 1 else 2, json.dumps(more or {})
    rows = arguments.get("per_device_train_batch_size", 8)
    whole = {**BASE, **arguments, "per_device_train_batch_size": rows}
    part = {**whole, "per_device_train_batch_size": rows // parts}
    plain = trained(WORKER, 1, json.dumps(whole), "null", rest)
    return plain, trained(WORKER, processes, json.dumps(part), json.dumps(shard), rest)


def check_equal(plain: dict, sharded: dict, rel: float = 2e-5) -> None:
    assert plain.keys() == sharded.keys() and len(plain) > 10
    assert len(plain["loss"]) > 3 and plain["loss"][-1] < plain["loss"][0]
    for name, values in plain.items():
        assert sharded[name] == pytest.approx(values, rel=rel, abs=rel), name


@pytest.mark.processes
def test_losses_schedule_and_weights_are_those_of_one_process(trained) -> None:
    check_equal(*both(trained, DATA, {"max_grad_norm": 0.5}))
