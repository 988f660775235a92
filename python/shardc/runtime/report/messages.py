"""Warnings of shardc: one category, an id in brackets before the text, and what a user silenced.

    warnings.filterwarnings("ignore", message=r"\\[SchedulerNotSaved\\]")  # one of them
    warnings.filterwarnings("ignore", category=shardc.ShardcWarning)  # all

``SHARDC_SILENCE=SchedulerNotSaved`` does the same from outside. An error cannot be silenced.
"""

from __future__ import annotations

import warnings

from ..environment import RANK, SILENCE
from .progress import erased


class ShardcWarning(UserWarning):
    """Base of every warning of shardc.

    Each begins with its id in brackets, which ``docs/reference/messages.md`` lists and ``SHARDC_SILENCE``
    takes.

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
    """Whether the user wants no remark or warning of this id."""
    return identity in SILENCE.get()


def titled(identity: str, text: str) -> str:
    """``[id] text``. An error's own text, which begins with the id, has it once."""
    return f"[{identity}] {text.removeprefix(f'{identity}: ')}"


def warn(identity: str, text: str, category: type[ShardcWarning], level: int = 1) -> None:
    """Warn at the line of the caller, or of the caller ``level - 1`` calls above it, unless silenced."""
    if not is_silenced(identity):
        with erased():
            warnings.warn(titled(identity, text), category, stacklevel=level + 1)


def warn_at(identity: str, text: str, category: type[ShardcWarning], place: tuple[str, int]) -> None:
    """Warn at a file and its line, unless silenced. Of ranks that all compile a program the first says so."""
    is_repeated = issubclass(category, ProgramCompiledWarning) and RANK.get() != "0"
    if not is_silenced(identity) and not is_repeated:
        with erased():
            warnings.warn_explicit(titled(identity, text), category, *place)
