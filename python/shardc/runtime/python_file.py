"""Import of a Python file by its path, which ignores any bytecode beside it."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


def imported_file(name: str, path: Path, listed: bool = False) -> ModuleType:
    """Import a file as the module ``name``, and add it to sys.modules if ``listed``. Raises ImportError."""
    if path.suffix != ".py":
        raise ImportError("it is not a Python file")
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if listed:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _SourceLoader(SourceFileLoader):
    """Loader that always compiles the text.

    Python's own would trust a ``.pyc`` with matching date and size.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)
