"""A model with whole weights beside one that a step trains sharded: to evaluate it eagerly."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

Model = TypeVar("Model", bound=nn.Module)


class Running(Protocol):
    """What of a compiled step is read here."""

    def state_dict(self) -> Mapping[str, DTensor]: ...


class WholeModel(Generic[Model]):
    """A copy of a model without parameters, which has a step's weights while :meth:`filled` is open.

    All ranks make it before the first step, and open it together.
    """

    def __init__(self, model: Model, shared: tuple[object, ...] = ()) -> None:
        """``shared``: objects that the copy refers to as the model does, such as its trainer."""
        tensors = dict(model.named_parameters())
        empty = {id(t): nn.Parameter(t.detach().to("meta"), t.requires_grad) for t in tensors.values()}
        memo: dict[int, object] = {**empty, **{id(item): item for item in shared}}
        self.model = copy.deepcopy(model, memo)

    @contextmanager
    def filled(self, step: Running) -> Iterator[Model]:
        """The copy with the values of ``step``, gathered whole on each rank, in the mode for evaluation."""
        empty, values = dict(self.model.named_parameters()), step.state_dict()
        made = {id(old): _whole(values[name], old) for name, old in empty.items()}
        self._exchange(made)
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                if name in values:
                    buffer.copy_(values[name].full_tensor())
        try:
            yield self.model.eval()
        finally:
            self._exchange({id(new): old for new, old in zip(made.values(), empty.values(), strict=True)})

    def _exchange(self, made: Mapping[int, nn.Parameter]) -> None:
        for module in self.model.modules():
            for name, parameter in [*module.named_parameters(recurse=False, remove_duplicate=False)]:
                setattr(module, name, made[id(parameter)])


def _whole(value: DTensor | Tensor, old: nn.Parameter) -> nn.Parameter:
    whole = value.full_tensor() if isinstance(value, DTensor) else value
    return nn.Parameter(whole.detach(), old.requires_grad)
