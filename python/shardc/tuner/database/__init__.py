"""Every trial that was ever made, on disk."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from shardc.tuner.database.place import database_path

if TYPE_CHECKING:
    from shardc.tuner.database.database import Database, Found, open_database

__all__ = ["Database", "Found", "database_path", "open_database"]


def __getattr__(name: str) -> object:
    """Loaded when it is asked for: it needs MLIR, which a start from the caches does without."""
    if name in __all__:
        return getattr(import_module("shardc.tuner.database.database"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
