"""On one device, the tensors of a running step are those of the user's model and optimizer."""

from collections.abc import Mapping

import torch
from torch import Tensor

from shardc.runtime.state import State


def share_state(state: State, own: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Let ``own`` (parameters and buffers by name) and the optimizer's state be what a step reads and writes.

    So ``model(x)``, ``optimizer.state_dict()``, loggers and averages see the training, and the step sees what
    is written into the model. What the model held goes; a tensor on the meta device gets its values.
    """
    for name, tensor in own.items():
        held = state.local.get(name)
        if held is None or held.shape != tensor.shape:
            continue
        if tensor.is_meta:
            made = torch.nn.Parameter(held, tensor.requires_grad) if _is_parameter(tensor) else held
            torch.utils.swap_tensors(tensor, made)
        else:
            tensor.data = held
        state.local[name] = tensor
    for name, leaf in state.leaves.items():
        parameter, _, key = name.rpartition("/")
        if leaf.role == "opt_state" and parameter in own:
            optimizer.state[own[parameter]][key] = state.local[name]


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter)
