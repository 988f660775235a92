"""Comparable values that determine what a module's forward computes from its arguments."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import partial

import torch

from shardc.frontend.step.frozen import PLAIN, Thing
from shardc.runtime.torch_private import gradient_hooks, module_tables

INDEX = ("layer_idx", "layer_id", "layer_index", "layer_number", "block_idx")
"""Names under which layers store their own index; differences matter only if they are read."""

_REGISTRIES = frozenset(vars(torch.nn.Module()))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_DEEPEST = 12
_TENSORS = ("_parameters", "_buffers")


class NotComparable(Exception):
    """A module has hooks, which may do anything."""


def signature(module: torch.nn.Module) -> Hashable | None:
    """Return class, mode, attributes, tensors and children of a module; None if it or a tensor has hooks."""
    try:
        return _described_module(module)
    except NotComparable:
        return None


def described(value: object, depth: int = 0) -> Hashable:
    """Return a value that equals another's only if code cannot distinguish the two."""
    if isinstance(value, PLAIN):
        return type(value), value
    if depth > _DEEPEST:
        return Thing(value)
    if isinstance(value, tuple | list):
        return type(value), *(described(item, depth + 1) for item in value)
    if isinstance(value, dict):
        items = value.items()
        return type(value), *((described(k, depth + 1), described(v, depth + 1)) for k, v in items)
    if type(value) is partial:
        return partial, described((value.func, value.args, value.keywords), depth + 1)
    return Thing(value)


def is_index(name: str, value: object) -> bool:
    """Return whether an attribute is the index of its module among others."""
    return name in INDEX and type(value) is int


def owned(module: torch.nn.Module) -> Iterator[tuple[dict[str, torch.Tensor | None], str, torch.Tensor]]:
    """Yield each parameter and buffer of a module and its submodules: its table, name and tensor."""
    for table in module_tables(module.modules(), _TENSORS):
        for name, tensor in table.items():
            if tensor is not None:
                yield table, name, tensor


def _described_module(module: torch.nn.Module) -> Hashable:
    if any(module_tables([module], _HOOKS)):
        raise NotComparable
    tensors = [table.items() for table in module_tables([module], _TENSORS)]
    held = vars(module).items()
    attributes = tuple((n, described(v)) for n, v in held if n not in _REGISTRIES and not is_index(n, v))
    children = tuple((name, _described_module(child)) for name, child in module.named_children())
    return type(module), module.training, tuple(map(_described_tensors, tensors)), attributes, children


def _described_tensors(tensors: Iterable[tuple[str, torch.Tensor | None]]) -> Hashable:
    return tuple((name, None if held is None else _described_tensor(held)) for name, held in tensors)


def _described_tensor(tensor: torch.Tensor) -> Hashable:
    if any(gradient_hooks(tensor)):
        raise NotComparable
    return tuple(tensor.shape), tensor.dtype, tensor.requires_grad
