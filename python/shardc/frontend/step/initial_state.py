"""Initial values of the state of ``torch.optim`` optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

Fill = float | Callable[[Mapping[str, float]], float]
_ADAM: dict[str, Fill] = {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0, "max_exp_avg_sq": 0.0}

# Initial values of each optimizer's state (sources of torch 2.13).
_INITIAL: dict[type[torch.optim.Optimizer], dict[str, Fill]] = {
    # With dampening, SGD's first step differs from a step on zeros: see Hyperparameter.first_step.
    torch.optim.SGD: {"momentum_buffer": 0.0},
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
    torch.optim.RAdam: _ADAM,
    torch.optim.NAdam: {**_ADAM, "mu_product": 1.0},
    torch.optim.Adamax: {"step": 0.0, "exp_avg": 0.0, "exp_inf": 0.0},
    torch.optim.Adadelta: {"step": 0.0, "square_avg": 0.0, "acc_delta": 0.0},
    torch.optim.Adagrad: {"step": 0.0, "sum": lambda group: group["initial_accumulator_value"]},
    torch.optim.RMSprop: {"step": 0.0, "square_avg": 0.0, "momentum_buffer": 0.0, "grad_avg": 0.0},
    torch.optim.Rprop: {"step": 0.0, "prev": 0.0, "step_size": lambda group: float(group["lr"])},
    torch.optim.ASGD: {"step": 0.0, "ax": 0.0, "mu": 1.0, "eta": lambda group: float(group["lr"])},
    torch.optim.Muon: {"momentum_buffer": 0.0},
}


def initial_fill(optimizer: torch.optim.Optimizer, group: int, key: str) -> float | None:
    """Return the initial value of state ``key`` for this group's parameters; None if it is unknown."""
    for kind in type(optimizer).__mro__:
        if key in _INITIAL.get(kind, {}):
            fill = _INITIAL[kind][key]
            return fill(optimizer.param_groups[group]) if callable(fill) else fill
    return None
