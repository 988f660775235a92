"""Hooks of modules and tensors run at the same points as in eager, and their changes take effect."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .conftest import assert_identical

Wrap = Callable[..., Any]


def _accumulated(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(7)


def _add_hooks(model: nn.Sequential) -> list[str]:
    """One of each kind on ``model``; returns the list that they write their names to."""
    calls: list[str] = []

    def note(name: str, value: Any) -> Any:
        calls.append(name)
        return value

    first, _, last = model
    first.register_forward_pre_hook(lambda module, args: note("forward pre", (args[0] * 2,)))
    first.register_forward_hook(lambda module, args, output: note("forward", output + 1))
    last.register_full_backward_pre_hook(
        lambda module, grads: note("backward pre", tuple(g * 2 for g in grads))
    )
    last.register_full_backward_hook(lambda module, grads, _: note("backward", tuple(g * 3 for g in grads)))
    first.weight.register_hook(lambda grad: note("tensor", grad * 5))
    first.bias.register_post_accumulate_grad_hook(_accumulated)
    return calls


def test_hooks_of_modules_and_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    twin, bare, x = copy.deepcopy(model), copy.deepcopy(model), torch.randn(3, 4)
    expected_calls, calls = _add_hooks(twin), _add_hooks(model)
    run = torch.compile(model, backend="shardc")
    for _ in range(2):
        out, expected = run(x), twin(x)
        assert_identical(out, expected)
        out.sum().backward()
        expected.sum().backward()
    assert_identical([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])
    assert calls == expected_calls and set(calls) == {
        "forward pre",
        "forward",
        "backward pre",
        "backward",
        "tensor",
    }
    bare(x).sum().backward()
    assert all(
        not torch.equal(p.grad, q.grad)
        for p, q in zip(model[0].parameters(), bare[0].parameters(), strict=True)
    )


def test_hooks_on_tensors_inside(compiled: Wrap) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        return y.sin()

    x = torch.randn(3, requires_grad=True)
    (found,) = torch.autograd.grad(compiled(f)(x).sum(), x)
    assert_identical(found, torch.autograd.grad(f(x).sum(), x)[0])
    torch.testing.assert_close(found, 6 * (2 * x).cos())


def test_saved_tensor_hooks(compiled: Wrap) -> None:
    """Around a compiled call they see the activations that its backward keeps."""
    packed: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.shape)
        return tensor.double()

    run, x = compiled(lambda x: (x.exp() * x).tanh()), torch.randn(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.float()):
        out = run(x)
    assert packed and all(shape == x.shape for shape in packed)
    assert_identical(torch.autograd.grad(out.sum(), x), torch.autograd.grad((x.exp() * x).tanh().sum(), x))
