"""shardc: compiles one PyTorch step for any mesh. Importing this module imports neither torch nor MLIR."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardc.commands.explain_function import explain_fusion, explain_memory
    from shardc.commands.tune import tune_path as tune
    from shardc.dialects.rules.custom import rule
    from shardc.frontend.operators.constrain import constrain
    from shardc.options.kernels import Kernels
    from shardc.options.numerics import Numerics
    from shardc.options.parallelism import Parallelism
    from shardc.options.pipeline import Pipeline
    from shardc.options.shapes import Shapes
    from shardc.planning.auto.search import search_plan
    from shardc.planning.auto.without_mesh import compile_step
    from shardc.runtime.report.messages import ShardcWarning
    from shardc.step.compile_forward import compile_forward
    from shardc.step.hugging_face import export_weights, read_weights

    __version__: str

__all__ = [
    "Kernels",
    "Numerics",
    "Parallelism",
    "Pipeline",
    "Shapes",
    "ShardcWarning",
    "__version__",
    "compile_forward",
    "compile_step",
    "constrain",
    "explain_fusion",
    "explain_memory",
    "export_weights",
    "read_weights",
    "rule",
    "search_plan",
    "tune",
]

_LAZY = {
    "Kernels": ("shardc.options.kernels", "Kernels"),
    "Numerics": ("shardc.options.numerics", "Numerics"),
    "Parallelism": ("shardc.options.parallelism", "Parallelism"),
    "Pipeline": ("shardc.options.pipeline", "Pipeline"),
    "ShardcWarning": ("shardc.runtime.report.messages", "ShardcWarning"),
    "compile_forward": ("shardc.step.compile_forward", "compile_forward"),
    "Shapes": ("shardc.options.shapes", "Shapes"),
    "compile_step": ("shardc.planning.auto.without_mesh", "compile_step"),
    "constrain": ("shardc.frontend.operators.constrain", "constrain"),
    "explain_fusion": ("shardc.commands.explain_function", "explain_fusion"),
    "explain_memory": ("shardc.commands.explain_function", "explain_memory"),
    "export_weights": ("shardc.step.hugging_face", "export_weights"),
    "read_weights": ("shardc.step.hugging_face", "read_weights"),
    "search_plan": ("shardc.planning.auto.search", "search_plan"),
    "rule": ("shardc.dialects.rules.custom", "rule"),
    "tune": ("shardc.commands.tune", "tune_path"),
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
