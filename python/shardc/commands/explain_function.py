"""Explains a function under ``torch.compile``: what its graphs fuse, and how much memory they need."""

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
    """Fusion in the graphs of one function: the result of :func:`shardc.explain_fusion`.

    ``str()`` gives the explanation. ``graphs`` are the reports, each with its phase, ``forward`` or
    ``backward``.

    Example:
        >>> found = shardc.explain_fusion(lambda x: (x.exp() + 1).sum(), torch.ones(8, 64))
        >>> [phase for phase, report in found.graphs]
        ['forward']
    """

    graphs: Reports

    def __str__(self) -> str:
        parts = [f"{phase}: {fusion_text.render(report)}" for phase, report in self.graphs]
        return "\n\n".join(parts) or "no graph was fused: kernels are made for CPU tensors of fixed sizes"


@dataclass(frozen=True)
class MemoryExplanation:
    """Memory of the graphs of one function: the result of :func:`shardc.explain_memory`.

    ``str()`` gives the explanation. ``graphs`` are the peaks, each with its phase, ``forward`` or
    ``backward``.

    Example:
        >>> found = shardc.explain_memory(lambda x: (x.exp() + 1).sum(), torch.ones(8, 64))
        >>> [phase for phase, peak in found.graphs]
        ['forward']
    """

    graphs: Peaks

    def __str__(self) -> str:
        parts = [f"{phase}: {memory_text.render(peak)}" for phase, peak in self.graphs]
        return "\n\n".join(parts) or "no graph was compiled"


Options = Mapping[str, object]
"""Options of ``torch.compile``."""


def explain_fusion(
    function: Callable[..., object], *args: object, options: Options | None = None, **kwargs: object
) -> FusionExplanation:
    """Explain what ``torch.compile(function, backend="shardc")`` fuses for these arguments, and why.

    Compiles and calls ``function`` once. The backward graph is included if a result needs gradients.

    Args:
        function: A module, or a function of tensors.
        args: Positional arguments of the call.
        options: Options of ``torch.compile``, as ``{"forbid_fusion": [...]}``. Default: none.
        kwargs: Keyword arguments of the call.

    Returns:
        The explanation; print it.

    Raises:
        BadArgument: ``function`` cannot be called.
        BadFusionEdge, FusionRefused: An option cannot be honoured. Dynamo wraps these in its own exception.

    Example:
        >>> found = shardc.explain_fusion(lambda x: (x.exp() + 1).sum(), torch.ones(8, 64))
        >>> "exp" in str(found)
        True
    """
    with collect_fusion() as graphs:
        call_compiled(function, args, kwargs, options)
    return FusionExplanation(graphs)


def explain_memory(
    function: Callable[..., object], *args: object, options: Options | None = None, **kwargs: object
) -> MemoryExplanation:
    """Explain the peak memory of the graphs of ``torch.compile(function, backend="shardc")``.

    Compiles and calls ``function`` once, as :func:`explain_fusion` does.

    Args:
        function: A module, or a function of tensors.
        args: Positional arguments of the call.
        options: Options of ``torch.compile``. Default: none.
        kwargs: Keyword arguments of the call.

    Returns:
        The explanation, in bytes by tensor at the peak; print it.

    Raises:
        BadArgument: ``function`` cannot be called.

    Example:
        >>> found = shardc.explain_memory(lambda x: (x.exp() + 1).sum(), torch.ones(8, 64))
        >>> "at most" in str(found)
        True
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
    """Compile ``function`` with ``options`` and call it once. This also compiles its backward, if any."""

    def backend(graph: GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
        return shardc_backend(graph, example_inputs, options=options)

    if not callable(function) or isinstance(function, type):
        hint = "pass a module or a function of tensors, and what it is called with"
        expected = "a module or a function"
        raise BadArgument(argument="function", given=describe(function), expected=expected, hint=hint)

    with functorch_config.patch(force_non_lazy_backward_lowering=True):
        torch.compile(uncompiled(function), backend=backend, dynamic=False)(*args, **kwargs)
