"""Results of a step besides its loss: parts of the model's output, functions of it, the gradients' norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from shardc.diagnostics.outputs import OutputNotFound, OutputNotTensor
from shardc.diagnostics.text import did_you_mean
from shardc.frontend.step.hooks import line_of_code

ALL, GRAD_NORM = "output", "grad_norm"
"""Names for the model's whole output, and for the norm of all gradients before clipping."""
ABSENT = object()

OutputFunction = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True)
class Outputs:
    """Requested outputs by name: a part of the model's output as text, or a function."""

    wanted: Mapping[str, object] = field(default_factory=dict)

    @property
    def norms(self) -> list[str]:
        """Return the names under which the gradients' norm is requested."""
        return [name for name, what in self.wanted.items() if what == GRAD_NORM]

    def without_norms(self) -> Outputs:
        """Return the outputs that a step without gradients has."""
        return Outputs({name: what for name, what in self.wanted.items() if what != GRAD_NORM})

    def find(self, output: object, batch: object) -> dict[str, torch.Tensor]:
        """Return all outputs except norms. Raises OutputNotFound and OutputNotTensor."""
        found = {}
        for name, what in self.without_norms().wanted.items():
            if callable(what):
                value, where = cast(OutputFunction, what)(output, batch), line_of_code(what)
            else:
                value, where = part_of(output, str(what)), None
            if not isinstance(value, torch.Tensor):
                raise OutputNotTensor(name=name, found=_kind(value), where=where)
            found[name] = value.detach()
        return found


def part_of(output: object, path: str) -> object:
    """Return the part of a model's output at ``path``, such as ``logits``, ``0`` or ``hidden_states.1``.

    Each word is a key, an attribute or an index. Raises OutputNotFound.
    """
    if path == ALL and isinstance(output, torch.Tensor):
        return output
    found = output
    for word in path.split("."):
        here, found = found, _step_into(found, word)
        if found is ABSENT or found is None:
            known = _parts(here)
            there = f"it has {', '.join(known)}" if known else "it has no parts"
            hint = f"{there}{did_you_mean(word, known)}; or give a function of it: lambda output, batch: ..."
            raise OutputNotFound(part=path, output=_kind(here), hint=hint)
    return found


def _step_into(value: object, word: str) -> object:
    if isinstance(value, Mapping):
        return value.get(word, ABSENT)
    if word.isdecimal() and isinstance(value, Sequence):
        return value[int(word)] if int(word) < len(value) else ABSENT
    if isinstance(value, torch.Tensor):
        return ABSENT
    return getattr(value, word, ABSENT)


def _parts(value: object) -> list[str]:
    if isinstance(value, torch.Tensor):
        return [ALL]
    if isinstance(value, Mapping):
        return [str(key) for key in value]
    names = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if names:
        return list(names)
    return [str(i) for i in range(len(value))] if isinstance(value, Sequence) else sorted(_attributes(value))


def _attributes(value: object) -> list[str]:
    return [name for name in vars(value) if not name.startswith("_")] if hasattr(value, "__dict__") else []


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"it is a tensor of shape {list(value.shape)}"
    return f"a {type(value).__name__}"
