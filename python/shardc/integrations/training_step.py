"""The ``training_step`` of a LightningModule as a module that ``compile_step`` traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from lightning.pytorch import LightningModule
from torch import Tensor, nn

from shardc.diagnostics.integrations import TrainerArgumentRefused
from shardc.frontend.importing.recorder import caller_line

Logged = list[tuple[str, dict[str, Any]]]


class BatchIndex:
    """Stands for ``batch_idx`` in a trace, which has none: any use of its value is refused with the line."""

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


class TrainingStep(nn.Module):
    """The parameters and modules of a LightningModule, under its names; called, it returns the loss."""

    def __init__(self, owner: LightningModule, takes_index: bool) -> None:
        super().__init__()
        self._parameters, self._buffers, self._modules = owner._parameters, owner._buffers, owner._modules
        self._call = _Call(owner, takes_index)

    def forward(self, batch: object) -> Tensor:
        """Raises TrainerArgumentRefused for what a compiled step does not return."""
        return self._call(batch)

    @property
    def logged(self) -> Logged:
        """The names under which the loss is logged, and how, as the last trace found them."""
        return self._call.logged


class _Call:
    """Runs ``training_step`` with ``log`` recorded."""

    def __init__(self, owner: LightningModule, takes_index: bool) -> None:
        self._owner, self._takes_index = owner, takes_index
        self.logged: Logged = []  # not the module's: a trace leaves a module's attributes as they were

    def __call__(self, batch: object) -> Tensor:
        with _recorded(self._owner) as calls:
            given = (batch, BatchIndex()) if self._takes_index else (batch,)
            output = self._owner.training_step(*given)
        loss = _loss(output)
        logged: Logged = []
        for name, value, where, how in calls:
            if value is not loss:
                _refuse("self.log", name, "a compiled step returns its loss alone", where)
            logged.append((name, how))
        self.logged = logged
        return loss


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
    if more := sorted(output.keys() - {"loss"}):
        _refuse("training_step's result", ", ".join(more), "a compiled step returns its loss alone", _line())
    return output["loss"]


def _refuse(argument: str, value: object, reason: str, where: str) -> NoReturn:
    instead = "log the loss itself; compute other metrics in validation_step, which runs eagerly"
    raise TrainerArgumentRefused(argument=argument, value=value, reason=reason, instead=instead, where=where)


def _line() -> str:
    ((file, line), *_) = caller_line()
    return f"{file}:{line}"
