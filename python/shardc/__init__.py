"""shardc: compiles one PyTorch step for any mesh. Importing this module imports neither torch nor MLIR."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardc.dialects.rules.custom import rule
    from shardc.driver.api import compile_step
    from shardc.driver.explain_fusion import explain_fusion
    from shardc.driver.memory import explain_memory
    from shardc.driver.tune import tune_path as tune

    __version__: str

__all__ = ["__version__", "compile_step", "explain_fusion", "explain_memory", "rule", "tune"]

_LAZY = {
    "compile_step": ("shardc.driver.api", "compile_step"),
    "explain_fusion": ("shardc.driver.explain_fusion", "explain_fusion"),
    "explain_memory": ("shardc.driver.memory", "explain_memory"),
    "rule": ("shardc.dialects.rules.custom", "rule"),
    "tune": ("shardc.driver.tune", "tune_path"),
}
"""Public name -> the module that has it, imported at first use, and its name there."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("shardc")
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'shardc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
