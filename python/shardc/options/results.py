"""Options of what a step returns besides its loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.options.field import Group, Hint, option

MISFIT = False
"""Marks a given value of the wrong type."""


def named_outputs(value: object) -> object:
    """Normalize outputs to ``{name: what}``; a sequence of names stands for equal names and values."""
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        value = {name: name for name in value}
    if not isinstance(value, Mapping):
        return MISFIT
    is_right = all(isinstance(what, str) or callable(what) for what in value.values())
    return dict(value) if is_right and all(isinstance(name, str) and name for name in value) else MISFIT


def split_names(text: str) -> list[str]:
    """Parse the names in ``logits,grad_norm``."""
    return [name.strip() for name in text.split(",")]


@dataclass(frozen=True)
class Results(Group):
    """Options of what a step returns besides its loss."""

    outputs: Mapping[str, object] | None = option(
        None,
        "Values that a step returns besides its loss, by name: a part of the model's output "
        "(logits, 0, hidden_states.1; output is all of it), grad_norm (the gradients' global "
        "2-norm before clipping), or in Python a function called as fn(output, batch) that "
        "returns a tensor.",
        Hint(
            "a list of names, or a mapping of names to parts of the output or functions",
            'as in outputs=["logits"] or outputs={"accuracy": lambda output, batch: ...}',
            "NAME,NAME",
        ),
        parse=split_names,
        convert=named_outputs,
        only="compile_step",
    )
