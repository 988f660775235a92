"""Warnings of shardc: one base category, an id in brackets before the text, and silencing by id.

    warnings.filterwarnings("ignore", message=r"\\[SchedulerNotSaved\\]")  # one of them
    warnings.filterwarnings("ignore", category=shardc.ShardcWarning)  # all

``SHARDC_SILENCE=SchedulerNotSaved`` in the environment does the same. Errors cannot be silenced.
"""

from __future__ import annotations

import warnings

from ..environment import RANK, SILENCE
from .progress import erased


class ShardcWarning(UserWarning):
    """Base of every warning of shardc.

    Its text begins with its id in brackets. ``docs/reference/messages.md`` lists the ids, and
    ``SHARDC_SILENCE`` takes them.

    Example:
        >>> warnings.filterwarnings("ignore", category=shardc.ShardcWarning)
    """


class ModelChangeWarning(ShardcWarning):
    """A model changed after it was compiled, and what that took: another trace, or another program."""


class ProgramCompiledWarning(ShardcWarning):
    """A step needed one more program, which took time."""


class StateWarning(ShardcWarning):
    """A checkpoint lacks something that training has."""


def is_silenced(identity: str) -> bool:
    """Return True if the user silenced remarks and warnings of this id."""
    return identity in SILENCE.get()


def titled(identity: str, text: str) -> str:
    """Return ``[id] text``. If the text of an error begins with its id, that is removed."""
    return f"[{identity}] {text.removeprefix(f'{identity}: ')}"


def warn(identity: str, text: str, category: type[ShardcWarning], level: int = 1) -> None:
    """Warn at the line of the caller, or of the caller ``level - 1`` calls above it, unless silenced."""
    if not is_silenced(identity):
        with erased():
            warnings.warn(titled(identity, text), category, stacklevel=level + 1)


def warn_at(identity: str, text: str, category: type[ShardcWarning], place: tuple[str, int]) -> None:
    """Warn at a line of a file, unless silenced. If all ranks compile a program, only rank 0 warns."""
    is_repeated = issubclass(category, ProgramCompiledWarning) and RANK.get() != "0"
    if not is_silenced(identity) and not is_repeated:
        with erased():
            warnings.warn_explicit(titled(identity, text), category, *place)
