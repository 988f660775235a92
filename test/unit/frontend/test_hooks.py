"""Hooks of parameters, modules, tensors and optimizers are part of the step, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.optim import SGD, Optimizer

from shardc.diagnostics.frontend import DataDependent, HookUnsupported
from shardc.frontend.step.capture import capture_step

pytestmark = pytest.mark.usefixtures("f64")
Hooked = Callable[[nn.Sequential, Optimizer], object]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def batches() -> list[tuple[Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(6, 4),) for _ in range(3)]


def loss(output: Tensor, _: object) -> Tensor:
    return output.square().mean()


def with_hook(add: Hooked) -> Callable[[nn.Module], Optimizer]:
    """Makes the optimizer of a model, with the hook on either."""

    def make(model: nn.Module) -> Optimizer:
        assert isinstance(model, nn.Sequential)
        optimizer = SGD(model.parameters(), lr=0.5)
        add(model, optimizer)
        return optimizer

    return make


def tripled(grad: Tensor) -> Tensor:
    return grad * 3


def tripled_in_place(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(3)


def decayed(parameter: Tensor) -> None:
    with torch.no_grad():
        parameter.mul_(0.9)


def of_all(change: Callable[[Tensor], object]) -> Callable[..., None]:
    """A hook of an optimizer's steps that changes all parameters."""

    def hook(optimizer: Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                change(parameter)

    return hook


def several(model: nn.Sequential, _: Optimizer) -> None:
    weight = model[0].weight
    weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    weight.register_hook(tripled).remove()
    weight.register_hook(lambda grad: grad + 0.1)
    weight.register_post_accumulate_grad_hook(tripled_in_place)


HOOKS: dict[str, Hooked] = {
    "gradient": lambda model, _: model[0].weight.register_hook(tripled),
    "gradient, in order": several,
    "gradient, in place": lambda model, _: model[0].weight.register_hook(lambda grad: grad.mul_(3)),
    "accumulated gradient": lambda model, _: model[0].weight.register_post_accumulate_grad_hook(
        tripled_in_place
    ),
    "accumulated gradient changes weight": lambda model, _: model[
        0
    ].weight.register_post_accumulate_grad_hook(decayed),
    "forward": lambda model, _: model[0].register_forward_hook(lambda m, i, out: out * 3),
    "before forward": lambda model, _: model[0].register_forward_pre_hook(lambda m, i: (i[0] * 3,)),
    "backward": lambda model, _: model[2].register_full_backward_hook(lambda m, i, o: (i[0] * 3,)),
    "before backward": lambda model, _: model[2].register_full_backward_pre_hook(lambda m, o: (o[0] * 3,)),
    "activation": lambda model, _: model[0].register_forward_hook(
        lambda m, i, out: out.register_hook(tripled) and None
    ),
    "before optimizer": lambda _, optimizer: optimizer.register_step_pre_hook(of_all(tripled_in_place)),
    "after optimizer": lambda _, optimizer: optimizer.register_step_post_hook(of_all(decayed)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_part_of_the_step(name: str, follows_eager: Callable[..., Any]) -> None:
    follows_eager(net(), with_hook(HOOKS[name]), batches(), loss=loss)


def test_a_hook_of_a_tied_parameter_is_called_once_for_the_sum(follows_eager: Callable[..., Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    add = with_hook(lambda m, _: m[2].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01)))
    follows_eager(model, add, batches(), loss=loss)


def test_clipping_sees_what_hooks_made(follows_eager: Callable[..., Any]) -> None:
    follows_eager(net(), with_hook(several), batches(), loss=loss, clip_grad_norm=0.05)


def test_a_frozen_parameter_calls_no_hook(follows_eager: Callable[..., Any]) -> None:
    def add(model: nn.Sequential, _: Optimizer) -> None:
        model[0].weight.requires_grad_(True).register_hook(tripled)
        model[0].weight.requires_grad_(False)

    follows_eager(net(), with_hook(add), batches(), loss=loss)


class AddsHook(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.register_hook(tripled)  # the hook's line is that of `tripled`
        return super().forward(x)


def refused(model: nn.Module) -> str:
    with pytest.raises(HookUnsupported) as caught:
        capture_step(model, SGD(model.parameters(), 0.5), batches()[0], loss=loss)
    return str(caught.value)


def test_a_hook_that_the_forward_adds_is_refused_with_its_line() -> None:
    text = refused(AddsHook(4, 3))
    assert "parameter weight" in text and "the forward registers it" in text
    assert f"at: {__file__}:{tripled.__code__.co_firstlineno}" in text


def test_a_hook_of_several_parameters_is_refused() -> None:
    model = net()
    register_multi_grad_hook(list(model.parameters()), lambda grads: None)
    assert "parameter 0.weight" in (text := refused(model)) and "register_multi_grad_hook" in text


def test_a_hook_that_reads_values_is_refused_with_its_line() -> None:
    model = net()

    def logged(grad: Tensor) -> None:
        print(float(grad.norm()))

    model[2].weight.register_hook(logged)
    with pytest.raises(DataDependent) as caught:
        capture_step(model, SGD(model.parameters(), 0.5), batches()[0], loss=loss)
    assert f"at: {__file__}:{logged.__code__.co_firstlineno + 1}" in str(caught.value)
