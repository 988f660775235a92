"""Origins of constants. Every constant of ``cost/`` has one in its annotation:

launch_s: Annotated[float, Assumed("a kernel behind another one on a stream")] = 3e-6
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """Measured in this project: on which machine, and in which decision or when."""

    where: str
    when: str


@dataclass(frozen=True)
class Sheet:
    """Taken from a vendor's data sheet or manual."""

    document: str


@dataclass(frozen=True)
class Published:
    """Taken from a paper, or from another project's code or issues."""

    source: str


@dataclass(frozen=True)
class Fitted:
    """Fitted to others' measurements: to which, and in which decision."""

    to: str


@dataclass(frozen=True)
class Assumed:
    """Not measured; why it is plausible."""

    why: str
