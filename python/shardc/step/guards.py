"""What keeps a user's model and optimizer with the training: values loaded into them reach the step, a call
of a sharded model is refused, and so are tensors put in the places of the step's.
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
"""The modules that have the hooks of :func:`guard_model`."""


class Slot(NamedTuple):
    """A tensor of optimizer state, and the number that fills it at the start."""

    parameter: Tensor
    key: str
    tensor: Tensor
    fill: float | None


@dataclass(frozen=True)
class Places:
    """Where a step's tensors were put: attributes of modules, and the optimizer's state."""

    model: Sequence[tuple[nn.Module, str, Tensor]]
    optimizer: Optimizer
    slots: Sequence[Slot]

    def check(self) -> None:
        """Raises StateReplaced if another tensor stands there."""
        for module, key, tensor in self.model:
            if getattr(module, key, None) is not tensor:
                raise StateReplaced(name=f"{type(module).__name__}.{key}", where=_caller())
        state = self.optimizer.state
        for parameter, key, tensor, _ in self.slots:
            if parameter not in state or state[parameter].get(key) is not tensor:
                raise StateReplaced(name=f"optimizer.state[...][{key!r}]", where=_caller())


def guard_model(model: nn.Module, held: Collection[int], *, is_whole: bool) -> None:
    """Let ``load_state_dict`` of modules that have tensors of these ``id`` write into them; if the tensors
    are sharded, let the modules refuse to be called.
    """
    for module in model.modules():
        is_ours = any(id(tensor) in held for tensor in (*module.parameters(), *module.buffers()))
        if is_ours and module not in _guarded:
            _guarded.add(module)
            module.register_load_state_dict_pre_hook(_convert)
            if not is_whole:
                module.register_forward_pre_hook(_refuse_call)


def guard_optimizer(optimizer: Optimizer, slots: Sequence[Slot]) -> None:
    """Let ``optimizer.load_state_dict`` write into the tensors that are there."""

    def put_back(optimizer: Optimizer) -> None:
        for parameter, key, tensor, fill in slots:
            loaded = optimizer.state[parameter].get(key)
            if loaded is not tensor:
                write(tensor, torch.full_like(tensor, fill or 0.0) if loaded is None else loaded)
                optimizer.state[parameter][key] = tensor

    optimizer.register_load_state_dict_post_hook(put_back)


@torch.no_grad()
def write(held: Tensor, value: Tensor) -> None:
    """Copy a whole tensor or a DTensor into the tensor of a step. Raises ValuesElsewhere."""
    held.copy_(like(held, value))


def like(held: Tensor, value: Tensor) -> Tensor:
    """``value`` as one that ``held`` can copy: this rank's part of it, if ``held`` is sharded."""
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
    """Before a module loads: whole tensors become parts. Raises StateReplaced for ``assign=True``."""
    if metadata.get("assign_to_params_buffers"):
        raise StateReplaced(name=f"{prefix}* (load_state_dict with assign=True)", where=_caller())
    parameters = module.named_parameters(recurse=False, remove_duplicate=False)
    for key, held in (*parameters, *module.named_buffers(recurse=False, remove_duplicate=False)):
        if isinstance(values.get(prefix + key), Tensor):
            values[prefix + key] = like(held, values[prefix + key])


def _refuse_call(module: nn.Module, _: object) -> None:
    if not torch.compiler.is_compiling():  # as in a trace of ours, which brings tensors of its own
        raise ModelIsSharded(kind=type(module).__name__, where=_caller())


def _caller() -> str:
    ((file, line), *_) = caller_line()
    return f"{file}:{line}"
