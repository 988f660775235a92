"""How a step calls the model and the loss with a batch, decided from signatures at compile time.

A mapping or dataclass is passed by the names of its entries, a tuple or list by position, and the loss is
called as ``loss(output, batch)``. If the forward cannot take the last part of a tuple or list, or if the loss
is one of PyTorch's own, the last part is the target: ``model(*inputs)`` and ``loss(output, target)``. A loss
whose second parameter is called ``batch`` gets all parts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from shardc.diagnostics.frontend import BatchAmbiguous, BatchNotTaken, LossNotTaken
from shardc.frontend.importing.recorder import caller_line
from shardc.frontend.step.batch import LossFunction, entries_of
from shardc.runtime.torch_private import module_tables

Form = Literal["names", "positions", "inputs, target", "inputs, batch", "whole"]
TARGETS = frozenset(("target", "targets", "y", "y_true", "label", "labels"))
"""Names of a loss's second parameter that show that it takes a target, not a batch."""


@dataclass(frozen=True)
class Call:
    """Which parts of a batch go to the model, and which to the loss besides the output."""

    form: Form

    def output(self, model: nn.Module, batch: object) -> object:
        """Return the model's output for a batch of this form."""
        if self.form == "whole":
            return model(batch)
        if self.form == "names":
            return model(**entries_of(batch))
        assert isinstance(batch, Sequence)
        return model(*(batch if self.form == "positions" else batch[:-1]))

    def of_loss(self, batch: object) -> object:
        """Return the loss's second argument."""
        if self.form != "inputs, target":
            return batch
        assert isinstance(batch, Sequence)
        return batch[-1]


def call_of(model: nn.Module, loss: LossFunction | None, batch: object) -> Call:
    """Return the call of a model and a loss for such a batch. Raises BatchNotTaken, BatchAmbiguous,
    LossNotTaken.
    """
    _check_loss(loss)
    forward = _Forward(model)
    if isinstance(batch, Mapping) or is_dataclass(batch):
        return Call(_of_entries(forward, loss, batch))
    assert isinstance(batch, Sequence)
    return Call(_of_parts(forward, loss, batch))


class _Forward:
    """Parameters of a model's forward; any arguments are accepted if only running it can tell."""

    def __init__(self, model: nn.Module) -> None:
        self.name = f"the forward of {type(model).__name__}"
        self._signature = _signature(model.forward) if _calls_forward(model) else None

    @property
    def text(self) -> str:
        return f"{self.name}{self._signature or ''}"

    def problem(self, *parts: object, **entries: object) -> str:
        """Return Python's reason why it cannot be called so; empty if it can."""
        if self._signature is None:
            return ""
        try:
            self._signature.bind(*parts, **entries)
        except TypeError as error:
            return str(error)
        return ""

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Return the names that are no parameters."""
        if self._signature is None:
            return []
        parameters = self._signature.parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            return []
        known = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        return [name for name in names if name not in known]


def _of_entries(forward: _Forward, loss: LossFunction | None, batch: object) -> Form:
    entries = entries_of(batch)
    names = list(map(str, entries))
    unknown = forward.unknown(names)
    if loss is not None and _is_of_torch(loss):
        what = f"which of {_listed(names)} is the target of {_name(loss)}"
        way = f"pass loss=lambda output, batch: loss_fn(output, batch[...]) for loss_fn={_name(loss)}"
        raise BatchAmbiguous(what=what, hint=f"{way}, or the batch as (inputs, target)", where=_line())
    has_names = isinstance(batch, Mapping) or len(unknown) < len(names)
    if not has_names and not forward.problem(batch):
        return "whole"
    if unknown:
        problem = f"it has no parameter {_listed(unknown)}"
        hint = (
            f"drop {_listed(unknown)} from the batch, or add **kwargs to the forward; what the loss alone "
            "reads can be the last part of a tuple, as in (x, y)"
        )
        raise BatchNotTaken(forward=forward.text, problem=problem, hint=hint, where=_line())
    if problem := forward.problem(**{str(name): value for name, value in entries.items()}):
        hint = "give the batch the entries that the forward needs"
        raise BatchNotTaken(forward=forward.text, problem=problem, hint=hint, where=_line())
    return "names"


def _of_parts(forward: _Forward, loss: LossFunction | None, batch: Sequence[object]) -> Form:
    is_of_torch = loss is not None and _is_of_torch(loss)
    whole = "" if is_of_torch else forward.problem(*batch)
    rest = "it gets nothing" if len(batch) < 2 else forward.problem(*batch[:-1])
    if loss is None or (rest and not is_of_torch):
        if not whole:
            return "positions"
        hint = "pass a tuple of the forward's arguments"
        hint += "; with loss= given, the last part may be its target" if loss is None else ""
        raise BatchNotTaken(forward=forward.text, problem=whole, hint=hint, where=_line())
    if rest:
        problem = f"{rest}, where the last of {len(batch)} parts is the target of {_name(loss)}"
        hint = "pass (x, y), or a function as loss=, which gets (output, batch)"
        raise BatchNotTaken(forward=forward.text, problem=problem, hint=hint, where=_line())
    if is_of_torch or whole:
        second = _second_parameter(loss)
        return "inputs, batch" if second and second.name == "batch" else "inputs, target"
    if second := _target_parameter(loss):
        what = f"whether the last part is an argument of {forward.text} or {second!r} of {_name(loss)}"
        hint = (
            "for a target, give the forward's other parameters too: (x, None, y), or PyTorch's own loss; "
            "for a loss of the whole batch, call its second parameter `batch`"
        )
        raise BatchAmbiguous(what=what, hint=hint, where=_line())
    return "positions"


def _check_loss(loss: LossFunction | None) -> None:
    """Raise LossNotTaken if a loss's signature shows that it does not take an output and a batch."""
    signature = None if loss is None or _is_of_torch(loss) else _signature_of(loss)
    if signature is None:
        return
    try:
        signature.bind("output", "batch")
    except TypeError as error:
        raise LossNotTaken(loss=f"{_name(loss)}{signature}", problem=str(error), where=_line()) from None


def _target_parameter(loss: LossFunction) -> str:
    """Return the name of a loss's second parameter if its name or annotation shows that it is no batch."""
    parameter = _second_parameter(loss)
    if parameter and (
        parameter.name.lower() in TARGETS or parameter.annotation in (Tensor, "Tensor", "torch.Tensor")
    ):
        return parameter.name
    return ""


def _second_parameter(loss: LossFunction) -> inspect.Parameter | None:
    signature = _signature_of(loss)
    return next(iter(list(signature.parameters.values())[1:2]), None) if signature else None


def _is_of_torch(loss: LossFunction) -> bool:
    """Return whether it is a function or module of PyTorch's, which takes tensors and no batch."""
    while isinstance(loss, partial):
        loss = loss.func
    owner = type(loss).forward if isinstance(loss, nn.Module) else loss
    return (getattr(owner, "__module__", None) or "").split(".")[0] == torch.__name__


def _calls_forward(model: nn.Module) -> bool:
    """Return whether a call of the model passes its arguments to ``forward`` unchanged."""
    (hooks,) = (table.values() for table in module_tables([model], ("_forward_pre_hooks",)))
    of_users = [hook for hook in hooks if not (getattr(hook, "__module__", None) or "").startswith("shardc.")]
    return type(model).__call__ is nn.Module.__call__ and not of_users


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # a function of C or of TorchScript
        return None


def _signature_of(loss: LossFunction) -> inspect.Signature | None:
    return _signature(loss.forward if isinstance(loss, nn.Module) else loss)


def _name(loss: object) -> str:
    return getattr(loss, "__name__", type(loss).__name__)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _line() -> str:
    file, line = caller_line()[0]
    return f"{file}:{line}"
