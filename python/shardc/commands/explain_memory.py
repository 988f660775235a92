"""What a function under ``torch.compile`` needs of memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from shardc.dynamo.backend import shardc_backend
from shardc.dynamo.explanations import Peaks, collect_fusion, collect_peaks
from shardc.report.memory_text import render
from shardc.runtime.torch_private import functorch_config, uncompiled


@dataclass(frozen=True)
class MemoryExplanation:
    """The peaks of the graphs of one function, with their phases; printed, they are its explanation."""

    graphs: Peaks

    def __str__(self) -> str:
        return (
            "\n\n".join(f"{phase}: {render(peak)}" for phase, peak in self.graphs) or "no graph was compiled"
        )


def explain_memory(
    function: Callable[..., Any], *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any
) -> MemoryExplanation:
    """What the graphs of ``torch.compile(function, backend="shardc", options=options)`` need at most, called
    like this.

    Compiles and calls ``function`` once. The backward graph is there if some result needs gradients.
    """

    def backend(graph: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return shardc_backend(graph, example_inputs, options=options)

    inner = uncompiled(function)
    with (
        collect_fusion(),
        collect_peaks() as graphs,
        functorch_config.patch(force_non_lazy_backward_lowering=True),
    ):
        torch.compile(inner, backend=backend, dynamic=False)(*args, **kwargs)
    return MemoryExplanation(graphs)
