"""States of users' objects in checkpoints: all that torch's schedulers hold, tensors, and nothing unknown."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import shardc
from shardc.runtime.checkpoint.load import Checkpoint
from shardc.runtime.checkpoint.objects import decode, encode
from shardc.runtime.errors import BadCheckpoint, HyperparameterMismatch, StateNotSaved
from shardc.step.compile_step import CompiledStep


class Holder:
    """An object with a state."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def new_step(nesterov: bool = False) -> tuple[CompiledStep, torch.optim.Optimizer]:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, nesterov=nesterov)
    step = shardc.compile_step(
        model, optimizer, (torch.randn(6, 4),), mesh={"data": 1}, loss=lambda y, _: y.sum(), fuse=False
    )
    return step, optimizer


STATES: dict[str, Any] = {
    "numbers": {"a": 1, "b": 2.5, "c": True, "d": None, "e": "text", "f": float("inf")},
    "nested": {"list": [1, (2, 3), {"x": {4, 5}}], "bytes": b"\x00\xff"},
    "keys": {1: "one", (2, 3): "two", "#": "a tag's name"},
    "counter": Counter([1, 1, 5]),
    "numpy": {"scalar": np.float32(0.5)},
}


@pytest.mark.parametrize("name", STATES)
def test_states_come_back(name: str) -> None:
    tensors: list[torch.Tensor] = []
    text = json.dumps(encode(STATES[name], tensors, "it"))
    found = decode(json.loads(text), {})
    assert found == STATES[name] and type(found) is type(STATES[name]) and not tensors


@pytest.mark.parametrize("value", [lambda: 0, nn.Linear(1, 1), object(), {"deep": [torch.optim]}])
def test_what_cannot_be_held_is_refused_by_name(value: object, tmp_path: Path) -> None:
    step, _ = new_step()
    with pytest.raises(StateNotSaved, match=r"the state of data.* holds a (function|Linear|object|module)"):
        step.save_checkpoint(tmp_path / "c", objects={"data": Holder({"value": value})})
    assert not (tmp_path / "c").exists()


def test_an_average_of_weights_and_a_generator(tmp_path: Path) -> None:
    step, _ = new_step()
    average = torch.optim.swa_utils.AveragedModel(nn.Linear(4, 2))
    rows = Holder({"order": torch.randperm(5), "half": torch.randn(3).bfloat16(), "array": np.arange(3)})
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    step.save_checkpoint(tmp_path, objects={"average": average, "rows": rows})
    drawn = random.random(), np.random.rand(), torch.rand(()).item()

    other, again = torch.optim.swa_utils.AveragedModel(nn.Linear(4, 2)), Holder({})
    new_step()[0].load_checkpoint(tmp_path, objects={"average": other, "rows": again})
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == drawn
    for name, value in average.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    for name in ("order", "half"):
        assert torch.equal(again.state[name], rows.state[name])
    assert again.state["array"].tolist() == [0, 1, 2]


def test_objects_that_are_not_passed_are_named(tmp_path: Path) -> None:
    step, _ = new_step()
    step.save_checkpoint(tmp_path, objects={"data": Holder({"position": 7})})
    with pytest.raises(
        BadCheckpoint, match=r"holds the state of 'data', which was not passed(.|\n)*'data': None"
    ):
        step.load_checkpoint(tmp_path)
    with pytest.raises(BadCheckpoint, match=r"holds no state of 'sampler'; it holds \['data'"):
        step.load_checkpoint(tmp_path, objects={"sampler": Holder({}), "data": None})
    data = Holder({})
    step.load_checkpoint(tmp_path, objects={"data": data})
    assert data.state == {"position": 7}
    step.load_checkpoint(tmp_path, objects={"data": None})


def test_a_scheduler_that_is_forgotten_is_warned_of(tmp_path: Path) -> None:
    step, optimizer = new_step()
    step.save_checkpoint(tmp_path / "without")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match=r"\[SchedulerNotSaved\] (.|\n)*objects="):
        step.save_checkpoint(tmp_path / "forgotten")
    step.save_checkpoint(tmp_path / "held", objects={"scheduler": scheduler})


def test_another_constant_of_the_program_is_refused(tmp_path: Path) -> None:
    step, optimizer = new_step()
    optimizer.param_groups[0]["note"] = "mine"
    step.save_checkpoint(tmp_path)
    other, group = new_step(nesterov=True)[0], "group0.nesterov"
    with pytest.raises(HyperparameterMismatch, match=f"training had {group} = False; the program has True"):
        other.load_checkpoint(tmp_path)
    same, its_optimizer = new_step()
    same.load_checkpoint(tmp_path)
    assert its_optimizer.param_groups[0]["note"] == "mine"


def test_what_a_record_holds_is_text(tmp_path: Path) -> None:
    step, _ = new_step()
    step.save_checkpoint(tmp_path, objects={"data": Holder({"position": 7})})
    record = Checkpoint(tmp_path).record
    assert record["objects"]["data"] == [{"position": 7}]
    assert record["optimizer"][0]["momentum"] == 0.5 and "params" not in record["optimizer"][0]
