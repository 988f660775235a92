"""Errors of the tuner."""

from __future__ import annotations

from typing import ClassVar

from shardc.diagnostics.base import ShardcError


class EmptySpace(ShardcError):
    """What the user pins and forbids leaves no legal configuration of a kernel."""

    template: ClassVar[str] = "no legal configuration is left of the sketches {sketches} under the pins {pinned}"
    hint: ClassVar[str] = "pin or forbid less; shardc tune --space prints what is legal"
