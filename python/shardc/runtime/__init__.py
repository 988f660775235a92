"""What a compiled step needs to run: torch alone. Every artefact carries a copy of this package.

``TrainStep.load(folder)`` gives the step; ``python run.py`` in the folder trains with it. Imports are lazy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import RuntimeFailure
    from .step import TrainStep

__all__ = ["RuntimeFailure", "TrainStep"]


def __getattr__(name: str) -> object:
    if name == "TrainStep":
        from .step import TrainStep

        return TrainStep
    if name == "RuntimeFailure":
        from .errors import RuntimeFailure

        return RuntimeFailure
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
