"""The two-layer artefact as a user's script trains it: schedulers, local batches, DTensors, wrong batches.

``train_worker.py FOLDER VALUES``: VALUES is a file of torch.save with the initial values, the batch and what
must come out.
"""

from __future__ import annotations

import sys

import torch
from rank_main import run
from torch.distributed.tensor import DTensor

from shardc.runtime import RuntimeFailure, TrainStep

FOLDER, VALUES = sys.argv[1:]


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def refused(action: object, *texts: str) -> None:
    try:
        action()  # type: ignore[operator]
    except RuntimeFailure as error:
        for text in texts:
            assert text in str(error), str(error)
    else:
        raise AssertionError(f"nothing raised for: {texts}")


def check_wrong_batches(step: TrainStep, x: torch.Tensor) -> None:
    refused(lambda: step({"x": x[:8], "scale": 2}), "'x'", "float64 [8, 6]", "float64 [16, 6]")
    refused(lambda: step({"x": x.float(), "scale": 2}), "'x'", "float32 [16, 6]", "float64 [16, 6]")
    refused(lambda: step({"scale": 2}), "lacks leaf 'x'")
    refused(lambda: step({"x": x, "scale": 2, "y": x}), "unknown leaf 'y'")
    refused(lambda: step({"x": x, "scale": 3}), "'scale'", "constant")
    refused(lambda: step(x), "mapping")
    refused(lambda: step.local({"x": x, "scale": 2}), "float64 [16, 6]", "float64 [8, 6]")
    refused(lambda: step.step_leaves({}), "lacks leaf 'x'")
    assert step.steps_done == 0


def check_scheduler(step: TrainStep, batch: dict, expected: dict) -> None:
    """A torch scheduler on a live optimizer drives the step, with global batches and local ones in turn."""
    mine = {"x": batch["x"].chunk(2)[step.rank // 2], "scale": 2}
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1e-3, momentum=0)
    step.bind(optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    parameters = dict(step.named_parameters())
    for number, loss in enumerate(expected["losses"]):
        found = step(batch) if number % 2 else step.local(mine)  # the net has an output, its prediction
        close(found.loss, torch.tensor(loss, dtype=torch.float64))
        assert found.outputs["prediction"].shape == (16, 3)
        scheduler.step()
    for name, value in parameters.items():
        assert isinstance(value, DTensor)
        close(value.full_tensor(), expected["parameters"][name])
    assert step.state_dict()["steps"].full_tensor().item() == len(expected["losses"])
    optimizer.param_groups[0]["momentum"] = 0.9
    refused(lambda: step(batch), "group0.momentum", "0.9")


def main() -> None:
    known = torch.load(VALUES)
    batch = {"x": known["x"], "scale": 2}
    step = TrainStep.load(FOLDER, timeout_s=60)
    check_wrong_batches(step, known["x"])
    check_scheduler(step, batch, known["scheduled"])
    step.load_state_dict({name: known[name] for name in ("up.weight", "down.weight")})
    close(step.state_dict()["up.weight"].full_tensor(), known["up.weight"])
    refused(lambda: step.load_state_dict({"up.weight": known["up.weight"]}), "lacks 'down.weight'")
    doubled = {name: known[name] * 2 for name in ("up.weight", "down.weight")}
    again = TrainStep.load(FOLDER, state=doubled)
    close(again.state_dict()["down.weight"].full_tensor(), doubled["down.weight"])
    close(again.state_dict()["steps"].full_tensor(), known["steps"])
    refused(lambda: again.hyper.__setitem__("group0.lrr", 1.0), "group0.lrr", "group0.lr")


if __name__ == "__main__":
    run(main, "the script agrees")
