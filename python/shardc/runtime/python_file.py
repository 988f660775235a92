"""Imports a Python file by its path."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def imported_file(name: str, path: Path, listed: bool = False) -> ModuleType:
    """Return the module ``name`` that the file holds, in sys.modules if ``listed``. Raises ImportError."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    if listed:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
