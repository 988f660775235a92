"""Where a constant is from. Every constant of ``cost/`` says so in its annotation:

launch_s: Annotated[float, Assumed("a kernel behind another one on a stream")] = 3e-6
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import get_type_hints


@dataclass(frozen=True)
class Measured:
    """Measured by us: on what machine, and in which decision or when."""

    where: str
    when: str


@dataclass(frozen=True)
class Sheet:
    """From a vendor's data sheet or manual."""

    document: str


@dataclass(frozen=True)
class Published:
    """From a paper, or from another project's code or issues."""

    source: str


@dataclass(frozen=True)
class Assumed:
    """Nobody measured it; why it is plausible."""

    why: str


Origin = Measured | Sheet | Published | Assumed


def origins(of: type | ModuleType) -> dict[str, Origin]:
    """The constants of a dataclass or a module that say where they are from, by name."""
    hints = get_type_hints(of, include_extras=True)
    found = ((name, getattr(hint, "__metadata__", ())) for name, hint in hints.items())
    return {name: said[0] for name, said in found if said}
