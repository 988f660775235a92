"""A function under ``torch.compile`` explained: what is fused in its graphs, and what memory they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from shardc.diagnostics.api import BadArgument
from shardc.dynamo.backend import shardc_backend
from shardc.dynamo.explanations import Peaks, Reports, collect_fusion, collect_peaks
from shardc.options.field import describe
from shardc.report import fusion_text, memory_text
from shardc.runtime.torch_private import functorch_config, uncompiled


@dataclass(frozen=True)
class FusionExplanation:
    """The reports of the graphs of one function, with their phases; printed, they are its explanation."""

    graphs: Reports

    def __str__(self) -> str:
        parts = [f"{phase}: {fusion_text.render(report)}" for phase, report in self.graphs]
        return "\n\n".join(parts) or "no graph was fused: kernels are made for CPU tensors of fixed sizes"


@dataclass(frozen=True)
class MemoryExplanation:
    """The peaks of the graphs of one function, with their phases; printed, they are its explanation."""

    graphs: Peaks

    def __str__(self) -> str:
        parts = [f"{phase}: {memory_text.render(peak)}" for phase, peak in self.graphs]
        return "\n\n".join(parts) or "no graph was compiled"


Options = Mapping[str, object]
"""Options of ``torch.compile``."""


def explain_fusion(
    function: Callable[..., object], *args: object, options: Options | None = None, **kwargs: object
) -> FusionExplanation:
    """What ``torch.compile(function, backend="shardc", options=options)`` fuses when called with these
    arguments, and why.

    Compiles and calls ``function`` (a module, or a function of tensors) once. The backward graph is there if
    some result needs gradients. Raises BadArgument, BadFusionEdge, FusionRefused (inside what Dynamo
    makes of a backend's errors).
    """
    with collect_fusion() as graphs:
        call_compiled(function, args, kwargs, options)
    return FusionExplanation(graphs)


def explain_memory(
    function: Callable[..., object], *args: object, options: Options | None = None, **kwargs: object
) -> MemoryExplanation:
    """What the graphs of ``torch.compile(function, backend="shardc", options=options)`` need at most, called
    like this. Compiles and calls ``function`` once, as :func:`explain_fusion` does.
    """
    with collect_fusion(), collect_peaks() as graphs:
        call_compiled(function, args, kwargs, options)
    return MemoryExplanation(graphs)


def call_compiled(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    options: Options | None,
) -> None:
    """Compile ``function`` with ``options`` and call it once; its backward, if any, is compiled at once."""

    def backend(graph: GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
        return shardc_backend(graph, example_inputs, options=options)

    if not callable(function) or isinstance(function, type):
        hint = "pass a module or a function of tensors, and what it is called with"
        expected = "a module or a function"
        raise BadArgument(argument="function", given=describe(function), expected=expected, hint=hint)

    with functorch_config.patch(force_non_lazy_backward_lowering=True):
        torch.compile(uncompiled(function), backend=backend, dynamic=False)(*args, **kwargs)
