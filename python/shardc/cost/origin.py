"""Where a constant is from. Every constant of ``cost/`` says so in its annotation:

launch_s: Annotated[float, Assumed("a kernel behind another one on a stream")] = 3e-6
"""

from __future__ import annotations

from dataclasses import dataclass


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
class Fitted:
    """Fitted to measurements of others: to which, and in which decision."""

    to: str


@dataclass(frozen=True)
class Assumed:
    """Nobody measured it; why it is plausible."""

    why: str
