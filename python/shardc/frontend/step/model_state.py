"""A module's parameters and buffers under canonical names, and a guard that restores a module."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

from shardc.diagnostics.frontend import UninitializedParameter
from shardc.frontend.importing.recorder import caller_line
from shardc.runtime.torch_private import FakeTensor


@dataclass(frozen=True)
class ModelState:
    """Parameters and buffers, each once, under the first name; ``tied`` maps other names to the first."""

    params: dict[str, torch.nn.Parameter]
    buffers: dict[str, torch.Tensor]
    tied: dict[str, str]


def model_state(model: torch.nn.Module) -> ModelState:
    """Read a module's state; a tensor with several names is listed under the first.

    Raises UninitializedParameter for tensors of lazy modules that were never called.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            file, line = caller_line()[0]
            raise UninitializedParameter(name=name, where=f"{file}:{line}")
    params, tied_params = _unique(model.named_parameters(remove_duplicate=False))
    buffers, tied_buffers = _unique(model.named_buffers(remove_duplicate=False))
    return ModelState(params, buffers, {**tied_params, **tied_buffers})


def has_storage(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has data of its own: not on the meta device, not fake, and no DTensor."""
    return not tensor.is_meta and not isinstance(tensor, FakeTensor | DTensor)


@contextmanager
def unchanged(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Restore all attributes of these modules after the block, and the lists and dicts in them."""
    saved = [(vars(module), dict(vars(module))) for module in modules]
    # Parameters, buffers and submodules are in dicts among the attributes.
    values = [value for _, held in saved for value in held.values()]
    saved += [(value, dict(value)) for value in values if type(value) in (dict, OrderedDict)]
    lists = [(value, list(value)) for value in values if type(value) is list]
    try:
        yield
    finally:
        for held, content in saved:
            held.clear()
            held.update(content)
        for held, content in lists:
            held[:] = content


def _unique(named: Iterator[tuple[str, torch.Tensor]]) -> tuple[dict, dict[str, str]]:
    first: dict[int, str] = {}
    unique, tied = {}, {}
    for name, tensor in named:
        canonical = first.setdefault(id(tensor), name)
        if canonical == name:
            unique[name] = tensor
        else:
            tied[name] = canonical
    return unique, tied
