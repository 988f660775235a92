"""Adam on an f32 copy of 16-bit parameters: mixed precision as in Micikevicius et al., 2018."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class MasterAdam(torch.optim.Optimizer):
    """State of each parameter: the copy (``master``) and two moments, all in f32: 12 bytes a number."""

    def __init__(self, params: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(params, {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8})
        for group in self.param_groups:
            for param in group["params"]:
                master = param.detach().float()
                moments = {name: torch.zeros_like(master) for name in ("exp_avg", "exp_avg_sq")}
                self.state[param] = {"master": master, **moments}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                state, grad = self.state[param], param.grad.float()
                state["exp_avg"].lerp_(grad, 1 - group["beta1"])
                state["exp_avg_sq"].mul_(group["beta2"]).addcmul_(grad, grad, value=1 - group["beta2"])
                scale = state["exp_avg_sq"].sqrt().add_(group["eps"])
                state["master"].addcdiv_(state["exp_avg"], scale, value=-group["lr"])
                param.copy_(state["master"])
