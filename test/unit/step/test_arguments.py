"""Arguments of ``compile_step``: errors that are raised before tracing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import shardc
from shardc.diagnostics.api import BadArgument, MeshNotGiven
from shardc.diagnostics.passes.plan import BadMeshSpec
from shardc.options.parallelism import Parallelism
from shardc.step.arguments import RULES, check_arguments, one_device, world_size
from shardc.step.sharding.mesh import make_mesh


@pytest.mark.parametrize(
    ("argument", "value", "given"),
    [
        ("model", torch.relu, "model is a builtin_function_or_method, not a torch.nn.Module"),
        ("optimizer", None, "optimizer is None, not an optimizer"),
        ("optimizer", torch.optim.SGD, "optimizer is the class SGD, not an optimizer"),
        ("loss", "mse", "loss is 'mse', not a function"),
        ("state", 3, "state is 3, not a state dict or a function"),
    ],
)
def test_a_wrong_argument_is_named_with_what_to_give(argument: str, value: Any, given: str) -> None:
    with pytest.raises(BadArgument) as caught:
        check_arguments({argument: value})
    message = caught.value.render()
    assert given in message
    assert f"at: {argument}=" in message
    assert f"try: {RULES[argument][2]}" in message


def test_right_arguments_pass() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    check_arguments({"model": model, "optimizer": optimizer, "loss": None, "state": lambda *_: None})


def test_compile_step_looks_at_them() -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(BadArgument, match="optimizer is None"):
        shardc.compile_step(model, None, (torch.ones(2, 2),), mesh={"data": 2})  # type: ignore[arg-type]


def test_the_world_must_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert world_size() is None
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert world_size() == 4
    monkeypatch.setenv("WORLD_SIZE", "four")
    with pytest.raises(BadArgument, match="WORLD_SIZE is 'four', not a number of processes"):
        world_size()


@pytest.mark.parametrize(
    ("mesh", "micro_batches", "problem"),
    [
        ({}, 1, "it has no axes"),
        ({"data": "2"}, 1, "axis 'data' has size '2'"),
        ({"data": 0}, 1, "axis 'data' has size 0"),
        ({"da ta": 2}, 1, "axis name 'da ta' is not an identifier"),
        ({"data": 2**64}, 1, "more devices than there can be ranks, 2147483647"),
        ({"data": 2**16, "tensor": 2**16}, 1, "more devices than there can be ranks, 2147483647"),
        ({"data": 2, "micro": 2}, 2, "axis 'micro' is reserved for micro-batches"),
    ],
)
def test_a_mesh_that_is_none(mesh: dict[str, Any], micro_batches: int, problem: str) -> None:
    with pytest.raises(BadMeshSpec, match=problem):
        make_mesh(mesh, micro_batches)


def test_an_axis_may_be_called_micro_where_there_are_no_micro_batches() -> None:
    assert make_mesh({"micro": 2}).world_size == 2


def test_without_a_mesh_the_step_is_for_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_device(None) == one_device({"plan": "data"}) == {"data": 1}
    assert one_device({"mesh": {"data": 2}}) is None and one_device(Parallelism({"data": 2})) is None
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.ones(3, 4)
    step = shardc.compile_step(model, optimizer, (x,), loss=lambda y, _: y.square().mean(), fuse=False)
    assert step.compiled.mesh.world_size == 1
    assert step((x,)).shape == ()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(MeshNotGiven, match=r'(?s)4 processes run.*mesh={"data": 4}'):
        shardc.compile_step(model, optimizer, (x,), loss=lambda y, _: y.square().mean())
