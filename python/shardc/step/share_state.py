"""Sharing of tensors between a running step and the user's model and optimizer.

On one device the step reads and writes the user's own tensors. On a mesh, DTensors over the step's memory
replace them, and calling the modules raises an error. A tensor that a DTensor cannot represent, because
another rank holds it or its blocks have another order, is replaced by an :class:`Elsewhere`, which raises
when it is read. The replaced tensors become such stand-ins, too, for code that still refers to them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from shardc.diagnostics.api import ModelInUse
from shardc.frontend.step.model_state import model_state
from shardc.runtime.state import Shared, State, local_of
from shardc.runtime.torch_private import show
from shardc.step.elsewhere import Elsewhere, elsewhere
from shardc.step.guards import Places, Slot, guard_model, guard_optimizer

REPLACED = "the first step put a DTensor in its place"
STORED = "its blocks are stored in another order than DTensor's"
OTHERS = "other ranks of the pipeline hold it"

_homes = WeakTensorKeyDictionary()
"""User's tensor -> weak reference to the running state that it belongs to, and its name there."""


def follow(model: nn.Module, optimizer: Optimizer) -> None:
    """Update a model or optimizer that still refers to replaced tensors."""
    for old in {id(x): x for x in (*_own(model).values(), *_parameters(optimizer))}.values():
        if isinstance(old, Elsewhere) and old.now is not None:
            _replace(model, optimizer, old, old.now)


def shared_with(model: nn.Module, optimizer: Optimizer) -> dict[str, Shared]:
    """Return the tensors of the model and the optimizer that earlier steps hold, by name."""
    named = {**_own(model), **slots_of(model, optimizer)}
    homes = {name: _home(tensor) for name, tensor in named.items()}
    return {name: home for name, home in homes.items() if home is not None}


def slots_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the tensors of optimizer state, by their names in a step."""
    return {name: value for name, _, _, value in _slots(model, optimizer)}


def share_state(state: State, model: nn.Module, optimizer: Optimizer) -> Places:
    """Make the model and the optimizer refer to the tensors that a step reads and writes.

    So ``state_dict()``, loggers and weight averages see the training, and the step sees values written into
    the model. The model's former tensors are freed. Tensors that an earlier step holds stay as they are.
    Raises ModelInUse.
    """
    for name, tensor in _own(model).items():
        if _home(tensor) is not None or name not in state.every:
            continue
        if state.is_whole:
            _lend(state, name, tensor)
        else:
            _exchange(state, name, tensor, model, optimizer)
    own, held = _own(model), slots_of(model, optimizer)
    for name, leaf in state.every.items():
        parameter, _, key = name.rpartition("/")
        if leaf.role == "opt_state" and parameter in own and (name not in held or _home(held[name]) is None):
            made = state.local[name] if state.is_whole else _stand_in(state, name, None)
            optimizer.state[own[parameter]][key] = made
            _homes[made] = (weakref.ref(state), name)
    return _guarded(state, model, optimizer)


def _guarded(state: State, model: nn.Module, optimizer: Optimizer) -> Places:
    held = {id(tensor) for name, tensor in _own(model).items() if name in state.every}
    direct = [(module, key, tensor) for module in model.modules() for key, tensor in _direct(module)]
    places = [(module, key, tensor) for module, key, tensor in direct if id(tensor) in held]
    slots = [
        Slot(parameter, key, tensor, state.every[name].fill)
        for name, parameter, key, tensor in _slots(model, optimizer)
        if name in state.every
    ]
    guard_model(model, held, is_whole=state.is_whole)
    guard_optimizer(optimizer, slots)
    return Places(places, optimizer, slots)


def _home(tensor: Tensor) -> Shared | None:
    """Return the running state that holds the tensor, and its name there."""
    found = _homes.get(tensor)
    state = None if found is None else found[0]()
    return None if found is None or state is None else (state, found[1])


def _lend(state: State, name: str, tensor: Tensor) -> None:
    """Let the step read and write the user's own tensor. A meta tensor gets the step's storage."""
    held = state.local[name]
    if tensor.is_meta:
        made = nn.Parameter(held, tensor.requires_grad) if _is_parameter(tensor) else held
        torch.utils.swap_tensors(tensor, made)
    else:
        tensor.data = held
    state.local[name] = tensor
    _homes[tensor] = (weakref.ref(state), name)


def _exchange(state: State, name: str, old: Tensor, model: nn.Module, optimizer: Optimizer) -> None:
    """Replace ``old`` by a view of the step's memory. Reading ``old`` raises from now on."""
    new = _stand_in(state, name, old)
    _replace(model, optimizer, old, new)
    _homes[new] = (weakref.ref(state), name)
    if isinstance(old, DTensor):
        return  # a tensor of a step that was freed, or a copy of such a tensor
    try:
        torch.utils.swap_tensors(old, elsewhere(old, name, REPLACED, now=new))
    except RuntimeError as error:  # autograd's graph or a weak reference has it
        raise ModelInUse(name=name, reason=str(error).splitlines()[0]) from None


def _stand_in(state: State, name: str, old: Tensor | None) -> Tensor:
    """Return a view of the step's tensor for the user's model: a parameter if ``old`` is one."""
    view = state.view(name)
    if view is None:
        leaf = state.every[name]
        like = torch.empty(leaf.shape, dtype=leaf.dtype, device="meta") if old is None else old
        return elsewhere(like, name, STORED if name in state.leaves else OTHERS, state=state)
    made = nn.Parameter(view, old.requires_grad) if old is not None and _is_parameter(old) else view.detach()
    show(local_of(view), made)  # pyright: ignore[reportArgumentType]  # a parameter of a DTensor is one
    return made


def _replace(model: nn.Module, optimizer: Optimizer, old: Tensor, new: Tensor) -> None:
    """Replace ``old`` by ``new`` in modules, the optimizer's parameter groups and its state."""
    for module in model.modules():
        for key, value in _direct(module):
            if value is old:
                setattr(module, key, new)
    for group in optimizer.param_groups:
        group["params"][:] = [new if parameter is old else parameter for parameter in group["params"]]
    if old in optimizer.state:
        optimizer.state[new] = optimizer.state.pop(old)


def _own(model: nn.Module) -> dict[str, Tensor]:
    read = model_state(model)
    return {**read.params, **read.buffers}


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _slots(model: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, Tensor, str, Tensor]]:
    """Yield the tensors of optimizer state: name in a step, parameter, key, value."""
    for name, parameter in _own(model).items():
        slots: Mapping[str, object] = optimizer.state.get(parameter, {})
        for key, value in slots.items():
            if isinstance(value, Tensor):
                yield f"{name}/{key}", parameter, key, value


def _direct(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return a module's own parameters and buffers, without its submodules'."""
    parameters = module.named_parameters(recurse=False, remove_duplicate=False)
    return [*parameters, *module.named_buffers(recurse=False, remove_duplicate=False)]


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter)
