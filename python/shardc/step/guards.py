"""Guards that keep a user's model and optimizer consistent with the running step.

Values loaded into the model or the optimizer reach the step. Calls of a sharded model raise an error, and so
do tensors that replace the step's own.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from shardc.diagnostics.api import ModelIsSharded, StateReplaced, ValuesElsewhere
from shardc.frontend.importing.recorder import caller_line
from shardc.step.elsewhere import Elsewhere

_guarded: WeakSet[nn.Module] = WeakSet()
"""Modules that already have the hooks of :func:`guard_model`."""


class Slot(NamedTuple):
    """Tensor of optimizer state, and the number that fills it before the first step."""

    parameter: Tensor
    key: str
    tensor: Tensor
    fill: float | None


@dataclass(frozen=True)
class Places:
    """Attributes of modules and entries of optimizer state that refer to a step's tensors."""

    model: Sequence[tuple[nn.Module, str, Tensor]]
    optimizer: Optimizer
    slots: Sequence[Slot]

    def check(self) -> None:
        """Raise StateReplaced if any of them now refers to another tensor."""
        for module, key, tensor in self.model:
            if getattr(module, key, None) is not tensor:
                raise StateReplaced(name=f"{type(module).__name__}.{key}", where=_caller())
        state = self.optimizer.state
        for parameter, key, tensor, _ in self.slots:
            if parameter not in state or state[parameter].get(key) is not tensor:
                raise StateReplaced(name=f"optimizer.state[...][{key!r}]", where=_caller())


def guard_model(model: nn.Module, held: Collection[int], *, is_whole: bool) -> None:
    """Let ``load_state_dict`` of modules write into the step's tensors, which have the ids ``held``.

    If the tensors are sharded (not ``is_whole``), calling the modules raises an error.
    """
    for module in model.modules():
        is_ours = any(id(tensor) in held for tensor in (*module.parameters(), *module.buffers()))
        if is_ours and module not in _guarded:
            _guarded.add(module)
            module.register_load_state_dict_pre_hook(_convert)
            if not is_whole:
                module.register_forward_pre_hook(_refuse_call)


def guard_optimizer(optimizer: Optimizer, slots: Sequence[Slot]) -> None:
    """Let ``optimizer.load_state_dict`` copy values into the step's tensors, and not replace them."""

    def put_back(optimizer: Optimizer) -> None:
        for parameter, key, tensor, fill in slots:
            loaded = optimizer.state[parameter].get(key)
            if loaded is not tensor:
                write(tensor, torch.full_like(tensor, fill or 0.0) if loaded is None else loaded)
                optimizer.state[parameter][key] = tensor

    optimizer.register_load_state_dict_post_hook(put_back)


@torch.no_grad()
def write(held: Tensor, value: Tensor) -> None:
    """Copy a whole tensor or a DTensor into a step's tensor. Raises ValuesElsewhere."""
    held.copy_(like(held, value))


def like(held: Tensor, value: Tensor) -> Tensor:
    """Return ``value`` in a form that ``held`` can copy: as a DTensor, if ``held`` is sharded."""
    if isinstance(held, Elsewhere):
        raise ValuesElsewhere(name=held.called, reason=held.reason)
    if not isinstance(held, DTensor) or isinstance(value, DTensor) or value.shape != held.shape:
        return value
    own = value.detach().to(held.device)
    return distribute_tensor(own, held.device_mesh, held.placements, src_data_rank=None)


def _convert(
    module: nn.Module,
    values: MutableMapping[str, Tensor],
    prefix: str,
    metadata: MutableMapping[str, object],
    *_: object,
) -> None:
    """Convert whole tensors to the module's shardings before it loads them.

    Raises StateReplaced for ``assign=True``.
    """
    if metadata.get("assign_to_params_buffers"):
        raise StateReplaced(name=f"{prefix}* (load_state_dict with assign=True)", where=_caller())
    parameters = module.named_parameters(recurse=False, remove_duplicate=False)
    for key, held in (*parameters, *module.named_buffers(recurse=False, remove_duplicate=False)):
        if isinstance(values.get(prefix + key), Tensor):
            values[prefix + key] = like(held, values[prefix + key])


def _refuse_call(module: nn.Module, _: object) -> None:
    if not torch.compiler.is_compiling():  # shardc's own traces call the module with other tensors
        raise ModelIsSharded(kind=type(module).__name__, where=_caller())


def _caller() -> str:
    ((file, line), *_) = caller_line()
    return f"{file}:{line}"
