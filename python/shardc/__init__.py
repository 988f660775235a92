"""shardc compiles one PyTorch training step for any mesh. Importing it imports neither torch nor MLIR."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardc.backends.eager.proof.comparison import Proof
    from shardc.commands.explain_function import (
        FusionExplanation,
        MemoryExplanation,
        explain_fusion,
        explain_memory,
    )
    from shardc.commands.tune import tune_path as tune
    from shardc.diagnostics.base import ShardcError
    from shardc.dialects.rules.custom import rule
    from shardc.frontend.operators.constrain import constrain
    from shardc.options.kernels import Kernels
    from shardc.options.numerics import Numerics
    from shardc.options.parallelism import Parallelism
    from shardc.options.pipeline import Pipeline
    from shardc.options.shapes import Shapes
    from shardc.planning.auto.search import SearchedPlan, search_plan
    from shardc.planning.auto.without_mesh import compile_step
    from shardc.report.plan_report import Report
    from shardc.runtime.errors import RuntimeFailure
    from shardc.runtime.outputs import StepResult
    from shardc.runtime.report.messages import ShardcWarning
    from shardc.step.compile_forward import CompiledForward, compile_forward
    from shardc.step.compile_step import CompiledStep
    from shardc.step.hugging_face import export_weights, read_weights

    __version__: str

__all__ = [
    "CompiledForward",
    "CompiledStep",
    "FusionExplanation",
    "Kernels",
    "MemoryExplanation",
    "Numerics",
    "Parallelism",
    "Pipeline",
    "Proof",
    "Report",
    "RuntimeFailure",
    "SearchedPlan",
    "Shapes",
    "ShardcError",
    "ShardcWarning",
    "StepResult",
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
    "CompiledForward": ("shardc.step.compile_forward", "CompiledForward"),
    "CompiledStep": ("shardc.step.compile_step", "CompiledStep"),
    "FusionExplanation": ("shardc.commands.explain_function", "FusionExplanation"),
    "Kernels": ("shardc.options.kernels", "Kernels"),
    "MemoryExplanation": ("shardc.commands.explain_function", "MemoryExplanation"),
    "Numerics": ("shardc.options.numerics", "Numerics"),
    "Parallelism": ("shardc.options.parallelism", "Parallelism"),
    "Pipeline": ("shardc.options.pipeline", "Pipeline"),
    "Proof": ("shardc.backends.eager.proof.comparison", "Proof"),
    "Report": ("shardc.report.plan_report", "Report"),
    "RuntimeFailure": ("shardc.runtime.errors", "RuntimeFailure"),
    "SearchedPlan": ("shardc.planning.auto.search", "SearchedPlan"),
    "Shapes": ("shardc.options.shapes", "Shapes"),
    "ShardcError": ("shardc.diagnostics.base", "ShardcError"),
    "ShardcWarning": ("shardc.runtime.report.messages", "ShardcWarning"),
    "StepResult": ("shardc.runtime.outputs", "StepResult"),
    "compile_forward": ("shardc.step.compile_forward", "compile_forward"),
    "compile_step": ("shardc.planning.auto.without_mesh", "compile_step"),
    "constrain": ("shardc.frontend.operators.constrain", "constrain"),
    "explain_fusion": ("shardc.commands.explain_function", "explain_fusion"),
    "explain_memory": ("shardc.commands.explain_function", "explain_memory"),
    "export_weights": ("shardc.step.hugging_face", "export_weights"),
    "read_weights": ("shardc.step.hugging_face", "read_weights"),
    "rule": ("shardc.dialects.rules.custom", "rule"),
    "search_plan": ("shardc.planning.auto.search", "search_plan"),
    "tune": ("shardc.commands.tune", "tune_path"),
}
"""Public names, each with its module, which is imported at first use, and its name there."""


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
