"""Runtime of compiled steps. It needs only torch, and every artefact contains a copy of it.

``TrainStep.load(folder)`` loads the step, and ``python run.py`` in the folder trains with it. Imports are
lazy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import RuntimeFailure
    from .step import TrainStep

__all__ = ["RuntimeFailure", "TrainStep"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".step" if name == "TrainStep" else ".errors", __name__), name)
