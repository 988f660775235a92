"""Imports a Python file by its path, and never the bytecode that may lie beside it."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


def imported_file(name: str, path: Path, listed: bool = False) -> ModuleType:
    """Return the module ``name`` that the file holds, in sys.modules if ``listed``. Raises ImportError."""
    if path.suffix != ".py":
        raise ImportError("it is no Python file")
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    if listed:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _SourceLoader(SourceFileLoader):
    """Compiles the text each time. Python's own takes a ``.pyc`` whose date and size fit, unread."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)
