"""Calls of a sharded model's modules between steps: programs in eval mode on the step's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shardc.options.step import StepOptions
from shardc.runtime.torch_private import pytree
from shardc.step.compile_step import CompiledStep
from shardc.step.evaluate import Forwards

CALL = "_compiled_call_impl"
"""Attribute that a module calls instead of its hooks and forward; ``module.compile()`` sets it."""


class ShardedCalls:
    """Run calls of the modules of ``owner`` sharded while :meth:`taken` is open.

    Only the outermost call is replaced. Its arguments are those of the global batch, on all ranks; each
    tensor of its result is whole.
    """

    def __init__(self, owner: nn.Module, step: CompiledStep, options: StepOptions) -> None:
        """Bind to the ``step`` that trains the parameters of ``owner`` under their names there."""
        self._owner, self._step, self._options = owner, step, options
        self._programs: dict[str, Forwards] = {}

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Replace the modules' calls inside the block, and restore them afterwards."""
        modules = {path: module for path, module in self._owner.named_modules() if _has_tensors(module)}
        saved = {module: module.__dict__.pop(CALL, None) for module in modules.values()}
        try:
            for path, module in modules.items():
                module.__dict__[CALL] = partial(self._call, path, saved)
            yield
        finally:
            _put(saved)

    def _call(self, path: str, saved: Mapping[nn.Module, object], *args: Any, **kwargs: Any) -> Any:
        taken = {module: module.__dict__.get(CALL) for module in saved}
        program = self._programs.setdefault(path, Forwards(Part(self._owner, path), None, self._options))
        _put(saved)
        try:
            with torch.inference_mode(False), torch.no_grad():
                batch = pytree.tree_map(_plain, (args, kwargs))
                found = program.forward(self._step.compiled, self._step.running, batch)
                return pytree.tree_map(gathered, found)
        finally:
            _put(taken)


class Part(nn.Module):
    """Module of ``owner`` that exposes the owner's parameters under the owner's names."""

    def __init__(self, owner: nn.Module, path: str) -> None:
        super().__init__()
        self._parameters, self._buffers, self._modules = owner._parameters, owner._buffers, owner._modules
        self._get = partial(owner.get_submodule, path)

    def forward(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the module's own output."""
        return self._get()(*args, **kwargs)


def gathered(value: Any) -> Any:
    """Return the whole tensor of a DTensor; anything else unchanged."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _has_tensors(module: nn.Module) -> bool:
    return any(True for _ in (*module.parameters(), *module.buffers()))


def _put(calls: Mapping[nn.Module, object]) -> None:
    for module, call in calls.items():
        if call is None:
            module.__dict__.pop(CALL, None)
        else:
            module.__dict__[CALL] = call


def _plain(value: Any) -> Any:
    """Return a tensor that can be traced: a clone if it was made in inference mode."""
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value
