"""``optimizer.step()`` compiled: every parameter and state tensor is written in place, as eager writes it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from shardc.frontend.graph.foreach import foreach_table

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": lambda p, foreach: torch.optim.AdamW(p, lr=1e-2, foreach=foreach),
    "sgd": lambda p, foreach: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, foreach=foreach),
    "rmsprop": lambda p, foreach: torch.optim.RMSprop(p, lr=1e-2, momentum=0.5, foreach=foreach),
}
# No 0-d parameter: Dynamo of torch 2.13 forgets its gradient in SGD with momentum, under every backend.
SHAPES = [(7, 5), (127,), (1,), (3, 2, 2), (129,), (7, 5)]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


def _states(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    held = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    return [p for group in optimizer.param_groups for p in group["params"]] + held


@pytest.mark.sampled(1)
@pytest.mark.parametrize("foreach", [False, True], ids=["each", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_go_as_in_eager(compiled: Callable[..., Any], name: str, foreach: bool) -> None:
    parameters = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in SHAPES]
    twins = copy.deepcopy(parameters)
    ours, theirs = OPTIMIZERS[name](parameters, foreach), OPTIMIZERS[name](twins, foreach)
    step = compiled(lambda: ours.step(), fuse=True)
    held: list[torch.Tensor] = []
    for number in range(4):
        for parameter, twin in zip(parameters, twins, strict=True):
            parameter.grad = torch.randn_like(parameter)
            twin.grad = parameter.grad.clone()
        (step if number else ours.step)()  # eager makes the state
        if number == 0:
            held = _states(ours)
        theirs.step()
    for found, expected in zip(_states(ours), _states(theirs), strict=True):
        torch.testing.assert_close(
            found, expected, rtol=1e-5, atol=1e-6
        )  # the step count is f32, and a tensor here
    assert all(a is b for a, b in zip(held, _states(ours), strict=True))


def test_foreach_ops_are_their_op_for_each_tensor() -> None:
    """Every decomposition that the table has, on the arguments that its schema asks for."""
    lists = [[torch.rand(n) + 0.5 for n in (3, 1, 4)] for _ in range(3)]
    for op, decomposition in foreach_table().items():
        given, kinds = iter(lists), [str(a.type) for a in op._schema.arguments if not a.has_default_value()]
        if op._schema.name == "aten::_foreach_mm":
            continue  # takes matrices
        values = {
            "List[Tensor]": lambda given=given: next(given),
            "List[number]": lambda: [2.0, 3.0, 0.5],
            "number": lambda: 2.0,
            "Tensor": lambda: torch.tensor(1.5),
        }
        arguments = [values[kind]() for kind in kinds]
        for found, expected in zip(decomposition(*arguments), op(*arguments), strict=True):
            torch.testing.assert_close(found, expected, equal_nan=True)
