"""Errors in the contracts between passes."""

from __future__ import annotations

from typing import ClassVar

from shardc.diagnostics.base import ShardcError


class LevelBroken(ShardcError):
    """A module does not keep the contract of the level it should be at."""

    template: ClassVar[str] = "the module is not at level {level}: {problem}"
    hint: ClassVar[str] = "run the passes before this one first; in a pipeline of shardc's own this is a bug, please report it"
