"""The ``training_step`` of a LightningModule as a module that ``compile_step`` traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from shardc.diagnostics.integrations import TrainerArgumentRefused
from shardc.frontend.importing.recorder import caller_line
from shardc.runtime.torch_private import FakeTensorMode, pytree

Logged = list[tuple[str, str, dict[str, Any]]]
"""For each logged value: its name, its name among the step's outputs, and arguments of ``log``."""


class BatchIndex:
    """Placeholder for ``batch_idx``, which a trace does not have; using its value raises with the line."""

    def _refuse(self, *_: object) -> NoReturn:
        raise TrainerArgumentRefused(
            argument="batch_idx",
            value="a number of each call",
            reason="training_step is traced once for all batches",
            instead="do what depends on it in on_train_batch_start or on_train_batch_end",
            where=_line(),
        )

    __index__ = __int__ = __float__ = __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __floordiv__ = _refuse
    __truediv__ = __format__ = __str__ = __hash__ = _refuse


LOSS = "loss"


class TrainingStep(nn.Module):
    """Module with the parameters and submodules of a LightningModule, under its names.

    A call returns the loss and the other logged values, by name.
    """

    def __init__(self, owner: LightningModule, takes_index: bool) -> None:
        super().__init__()
        self._parameters, self._buffers, self._modules = owner._parameters, owner._buffers, owner._modules
        self._call = _Call(owner, takes_index)

    def forward(self, batch: object) -> dict[str, Tensor]:
        """Run the step. Raises TrainerArgumentRefused for results that a compiled step does not return."""
        return self._call(batch)

    @property
    def logged(self) -> Logged:
        """Return the logged values' names and arguments, as the last trace found them."""
        return self._call.logged

    def outputs(self, batch: object) -> dict[str, str]:
        """Return the values that ``training_step`` logs besides its loss, in the form of ``outputs=``.

        The step runs once on fake tensors; nothing is drawn or computed.
        """
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            tensors = (*self.named_parameters(), *self.named_buffers())
            held: dict[str, Tensor] = {name: fake.from_tensor(tensor) for name, tensor in tensors}
            given = pytree.tree_map(lambda t: fake.from_tensor(t) if isinstance(t, Tensor) else t, batch)
            found = torch.func.functional_call(self, held, (given,))
        return {name: name for name in found if name != LOSS}


class _Call:
    """Run ``training_step`` while recording calls of ``log``."""

    def __init__(self, owner: LightningModule, takes_index: bool) -> None:
        self._owner, self._takes_index = owner, takes_index
        self.logged: Logged = []  # not an attribute of the module, which a trace would restore

    def __call__(self, batch: object) -> dict[str, Tensor]:
        with _recorded(self._owner) as calls:
            given = (batch, BatchIndex()) if self._takes_index else (batch,)
            output = self._owner.training_step(*given)
        loss = _loss(output)
        logged: Logged = []
        found = {LOSS: loss}
        for name, value, where, how in calls:
            key = LOSS if value is loss else f"{len(logged)} {name}".replace(".", "_")  # a dot is a path
            found[key] = _number(name, value, where)
            logged.append((name, key, how))
        self.logged = logged
        return found


@contextmanager
def _recorded(owner: LightningModule) -> Iterator[list[tuple[str, object, str, dict[str, Any]]]]:
    calls: list[tuple[str, object, str, dict[str, Any]]] = []

    def log(name: str, value: object, **how: Any) -> None:
        calls.append((name, value, _line(), how))

    def log_dict(values: dict[str, object], **how: Any) -> None:
        calls.extend((name, value, _line(), how) for name, value in values.items())

    recording: dict[str, Callable[..., None]] = {"log": log, "log_dict": log_dict}
    owner.__dict__.update(recording)
    try:
        yield calls
    finally:
        for name in recording:
            del owner.__dict__[name]


def _loss(output: Any) -> Tensor:
    if not isinstance(output, dict):
        return output
    if more := sorted(output.keys() - {LOSS}):
        _refuse(
            "training_step's result", ", ".join(more), "a step returns its loss, and what is logged", _line()
        )
    return output[LOSS]


def _number(name: str, value: object, where: str) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1:
        kind = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        _refuse("self.log", name, f"it is {kind}, and a compiled step returns tensors of one number", where)
    return value.reshape(())


def _refuse(argument: str, value: object, reason: str, where: str) -> NoReturn:
    instead = (
        "log tensors of one number; do the rest in on_train_batch_end or validation_step, which run eagerly"
    )
    raise TrainerArgumentRefused(argument=argument, value=value, reason=reason, instead=instead, where=where)


def _line() -> str:
    ((file, line), *_) = caller_line()
    return f"{file}:{line}"
