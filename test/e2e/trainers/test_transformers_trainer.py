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
    if evaluated := arguments.get("per_device_eval_batch_size"):
        part["per_device_eval_batch_size"] = evaluated // parts
    plain = trained(WORKER, 1, json.dumps(whole), "null", rest)
    return plain, trained(WORKER, processes, json.dumps(part), json.dumps(shard), rest)


def check_equal(plain: dict, sharded: dict, rel: float = 2e-5) -> None:
    assert plain.keys() == sharded.keys() and len(plain) > 10
    assert len(plain["loss"]) > 3 and min(plain["loss"]) < plain["loss"][0]
    for name, values in plain.items():
        assert sharded[name] == pytest.approx(values, rel=rel, abs=rel), name


@pytest.mark.processes
@pytest.mark.slow
def test_losses_schedule_and_weights_are_those_of_one_process(trained) -> None:
    check_equal(*both(trained, DATA, {"max_grad_norm": 0.5}))


CASES = {
    "accumulation": ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}, {}),
    "evaluation": ({"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4}, {}),
    "smoothing": ({"label_smoothing_factor": 0.1}, {}),
    "loss": ({"learning_rate": 1e-3}, {"loss": True}),
    "checkpointing": ({"gradient_checkpointing": True}, {}),
    "metrics": (
        {"eval_strategy": "steps", "eval_steps": 4, "per_device_eval_batch_size": 4},
        {"held_out": 14, "metrics": True, "predict": True},
    ),
    "smoothed metrics": (
        {"eval_strategy": "epoch", "per_device_eval_batch_size": 4, "label_smoothing_factor": 0.1},
        {"metrics": True},
    ),
    "smaller": ({}, {"rows": 35}),
    "smaller in two": (
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
        {"rows": 38},
    ),
    "best": (
        {
            "load_best_model_at_end": True,
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "per_device_eval_batch_size": 4,
        },
        {"rows": 16},
    ),
    "dropped": ({"dataloader_drop_last": True}, {"rows": 35}),
    "sgd": ({"optim": "sgd", "max_grad_norm": 0.0, "learning_rate": 0.5}, {}),
}


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.drawn(5)
@pytest.mark.parametrize("case", CASES)
def test_what_arguments_say_is_done(case: str, trained) -> None:
    arguments, more = CASES[case]
    plain, sharded = both(trained, DATA, arguments, more)
    check_equal(plain, sharded)
    assert bool(plain["eval_loss"]) == ("eval_strategy" in arguments)
    assert bool(plain["eval_rows"]) == ("metrics" in more)


@pytest.mark.processes
@pytest.mark.slow
def test_data_and_tensor_on_four_processes(trained) -> None:
    check_equal(*both(trained, BOTH, {"eval_strategy": "epoch", "per_device_eval_batch_size": 4}))


@pytest.mark.processes
@pytest.mark.slow
def test_bf16_follows_the_plain_trainer(trained) -> None:
    """Up to bf16's rounding: kernels round at their results."""
    plain, sharded = both(trained, DATA, {"bf16": True, "optim": "sgd", "learning_rate": 0.1})
    assert sharded["loss"] == pytest.approx(plain["loss"], rel=5e-3)
    assert sharded["learning_rate"] == plain["learning_rate"]


@pytest.mark.processes
@pytest.mark.slow
def test_a_checkpoint_goes_on_where_it_was_saved(trained) -> None:
    """Saved amid the second epoch on two processes; the plain Trainer ran through."""
    schedule = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 4}
    saving = {**schedule, "save_strategy": "steps", "save_steps": 6, "save_total_limit": 1}
    whole = {**BASE, **saving, "per_device_train_batch_size": 8}
    plain = trained(WORKER, 1, json.dumps(whole), "null", "{}")
    part = {**BASE, **saving, "per_device_train_batch_size": 4}
    more = json.dumps({"resume": "out/checkpoint-6"})
    sharded = trained(WORKER, 2, json.dumps({**part, "max_steps": 6}), json.dumps(DATA), "{}")
    assert len(sharded["loss"]) == 6
    resumed = trained(WORKER, 2, json.dumps(part), json.dumps(DATA), more)
    check_equal(plain, resumed)
