"""Check whether PyTorch alone can trace a model's forward and backward, to tell its failures from ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from subjects import Subject
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree


def torch_refuses(subject: Subject, model: torch.nn.Module, batch: Any) -> str:
    """Why ``make_fx`` on fake tensors cannot trace loss and gradients; empty if it can."""
    params, buffers = dict(model.named_parameters()), dict(model.named_buffers())

    def step(params: dict[str, Any], buffers: dict[str, Any], batch: Any) -> Any:
        leaves = {
            name: value.detach().requires_grad_(params[name].is_floating_point())
            for name, value in params.items()
        }
        args, kwargs = ((), batch) if isinstance(batch, Mapping) else (tuple(batch), {})
        output = torch.func.functional_call(model, {**leaves, **buffers}, args, kwargs)
        loss = subject.loss(output, batch)
        return loss.detach(), torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)

    detached = pytree.tree_map(lambda tensor: tensor.detach(), params)
    try:
        make_fx(step, tracing_mode="fake")(detached, buffers, batch)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
    return ""
