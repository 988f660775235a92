"""Inputs of one call of a layer: its tensors, and everything else that determines what it computes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.fx import Node

from shardc.frontend.importing.recorder import Frames
from shardc.frontend.step.fold.signature import described, owned, signature
from shardc.frontend.step.fold.tape import Tape
from shardc.frontend.step.frozen import PLAIN, Thing
from shardc.frontend.step.traced_tensor import layout_of
from shardc.runtime.torch_private import function_modes, get_current_dispatch_mode, pytree

Arguments = tuple[tuple[object, ...], Mapping[str, object]]


@dataclass(frozen=True, eq=False)
class Given:
    """One call. ``tensors``: its arguments' and the module's own, each once. ``nodes``: their nodes.

    Calls with the same ``key`` compute the same function of their tensors, as far as is known beforehand.
    """

    module: torch.nn.Module
    leaves: list[object]
    form: pytree.TreeSpec
    tensors: list[torch.Tensor]
    nodes: list[Node]
    lines: Frames
    key: Hashable

    @property
    def differentiable(self) -> list[torch.Tensor]:
        """Return the tensors that require gradients."""
        return [tensor for tensor in self.tensors if tensor.requires_grad]

    def arguments(self, instead: Mapping[int, torch.Tensor]) -> Arguments:
        """Return positional and named arguments, with tensors replaced by id."""
        return pytree.tree_unflatten([instead.get(id(leaf), leaf) for leaf in self.leaves], self.form)


def given(module: torch.nn.Module, arguments: Arguments, lines: Frames, tape: Tape) -> Given | None:
    """Return a call; None if its arguments or hooks leave open what it computes."""
    args, kwargs = arguments
    if not is_fixed((*args, *kwargs.values())) or (kind := signature(module)) is None:
        return None
    leaves, form = pytree.tree_flatten(arguments)
    others = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    held = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    held += [tensor for _, _, tensor in owned(module)]
    tensors = list({id(tensor): tensor for tensor in held}.values())
    nodes = [node for tensor in tensors if (node := tape.node(tensor)) is not None]
    if len(nodes) < len(tensors):
        return None
    pattern = places(held), places(nodes), tuple(isinstance(leaf, torch.Tensor) for leaf in leaves)
    layouts = tuple(map(layout_of, tensors))
    key = (kind, form, pattern, layouts, tuple(map(described, others)), lines, _surroundings())
    return Given(module, leaves, form, tensors, nodes, lines, key)


def is_fixed(value: object) -> bool:
    """Return whether only its tensors can be written to: tuples of tensors and numbers."""
    if isinstance(value, tuple):
        return all(map(is_fixed, value))
    return isinstance(value, (torch.Tensor, *PLAIN))


def places(items: Sequence[object]) -> tuple[int, ...]:
    """Return for each item the place of the first identical item."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(item), place) for place, item in enumerate(items))


def _surroundings() -> Hashable:
    """Return global state that determines which ops a function calls."""
    modes = [Thing(mode) for mode in (*function_modes(), get_current_dispatch_mode())]
    cast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return torch.get_default_dtype(), cast, *modes


@contextmanager
def lent(module: torch.nn.Module, instead: Mapping[int, torch.Tensor]) -> Iterator[None]:
    """Replace the module's parameters with these ids inside the block."""
    held = [(table, name, tensor) for table, name, tensor in owned(module) if id(tensor) in instead]
    for table, name, tensor in held:
        table[name] = instead[id(tensor)]
    try:
        yield
    finally:
        for table, name, tensor in held:
            if table.get(name) is instead[id(tensor)]:  # otherwise the forward has set another
                table[name] = tensor
