"""Hyperparameters: set by hand, or read from a live optimizer."""

from __future__ import annotations

import warnings

import pytest
import torch

from shardc.runtime.errors import HyperparameterMismatch
from shardc.runtime.hyper import Hyperparameters


def entry(
    name: str, key: str, value: float, index: int | None = None, first_step: float | None = None
) -> dict:
    return {"name": name, "group": 0, "key": key, "index": index, "first_step": first_step, "value": value}


@pytest.fixture
def hyper() -> Hyperparameters:
    numbers = [
        entry("group0.lr", "lr", 0.1),
        entry("group0.beta2", "betas", 0.99, index=1),
        entry("group0.damp", "damp", 0.5, first_step=0.0),
    ]
    return Hyperparameters(numbers, [{"group": 0, "key": "amsgrad", "value": False}])


@pytest.fixture
def optimizer() -> torch.optim.Optimizer:
    made = torch.optim.AdamW([torch.zeros(1)], lr=0.2, betas=(0.8, 0.9))
    made.param_groups[0]["damp"] = 0.25
    return made


def test_set_by_hand(hyper: Hyperparameters) -> None:
    hyper["group0.lr"] = 1
    assert dict(hyper) == {"group0.lr": 1.0, "group0.beta2": 0.99, "group0.damp": 0.5}
    assert hyper.at_step(0)["group0.damp"] == 0.0 and hyper.at_step(1)["group0.damp"] == 0.5


def test_unknown_name_lists_near_ones(hyper: Hyperparameters) -> None:
    with pytest.raises(
        HyperparameterMismatch, match=r"no hyperparameter 'group0.l'\n.*\n  try: use one of group0.lr"
    ):
        hyper["group0.l"] = 1
    with pytest.raises(HyperparameterMismatch):
        del hyper["group0.lr"]


def test_bound_optimizer_and_scheduler(hyper: Hyperparameters, optimizer: torch.optim.Optimizer) -> None:
    hyper.bind(optimizer)
    assert dict(hyper) == {"group0.lr": 0.2, "group0.beta2": 0.9, "group0.damp": 0.25}
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(3):
            assert hyper.at_step(step)["group0.lr"] == pytest.approx(0.2 * 0.5**step)
            scheduler.step()


def test_setting_one_changes_the_optimizer(hyper: Hyperparameters, optimizer: torch.optim.Optimizer) -> None:
    held = optimizer.param_groups[0]["lr"] = torch.tensor(0.5)
    hyper.bind(optimizer)
    hyper.update({"group0.lr": 0.75, "group0.beta2": 0.95})
    assert optimizer.param_groups[0]["lr"] is held and held == 0.75, "schedulers may hold the tensor"
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.95)
    optimizer.param_groups[0]["lr"].fill_(0.125)
    assert hyper["group0.lr"] == hyper.at_step(1)["group0.lr"] == 0.125


def test_restored_numbers_go_to_the_next_optimizer_alone(
    hyper: Hyperparameters, optimizer: torch.optim.Optimizer
) -> None:
    hyper.restore({"group0.lr": 0.75, "group0.beta2": 0.95, "group0.damp": 0.125})
    hyper.bind(optimizer)
    assert hyper.at_step(1) == {"group0.lr": 0.75, "group0.beta2": 0.95, "group0.damp": 0.125}
    assert optimizer.param_groups[0]["lr"] == 0.75
    other = torch.optim.AdamW([torch.zeros(1)], lr=0.5)
    other.param_groups[0]["damp"] = 0.0
    hyper.bind(other)
    assert hyper["group0.lr"] == other.param_groups[0]["lr"] == 0.5


def test_tensor_learning_rates(hyper: Hyperparameters, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["lr"] = torch.tensor(0.5)
    hyper.bind(optimizer)
    assert hyper["group0.lr"] == 0.5


def test_constants_of_the_program_may_not_change(
    hyper: Hyperparameters, optimizer: torch.optim.Optimizer
) -> None:
    hyper.bind(optimizer)
    optimizer.param_groups[0]["amsgrad"] = True
    with pytest.raises(
        HyperparameterMismatch, match=r"group0\.amsgrad is now True; the program was compiled with False"
    ):
        hyper.at_step(1)


def test_another_optimizer_is_refused(hyper: Hyperparameters) -> None:
    with pytest.raises(HyperparameterMismatch, match=r"the optimizer has no group0\.betas"):
        hyper.bind(torch.optim.SGD([torch.zeros(1)], lr=0.1))
