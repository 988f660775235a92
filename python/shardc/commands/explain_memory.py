"""What a function under ``torch.compile`` needs of memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardc.commands.traced_call import call_compiled
from shardc.dynamo.explanations import Peaks, collect_fusion, collect_peaks
from shardc.report.memory_text import render


@dataclass(frozen=True)
class MemoryExplanation:
    """The peaks of the graphs of one function, with their phases; printed, they are its explanation."""

    graphs: Peaks

    def __str__(self) -> str:
        parts = [f"{phase}: {render(peak)}" for phase, peak in self.graphs]
        return "\n\n".join(parts) or "no graph was compiled"


def explain_memory(
    function: Callable[..., object],
    *args: object,
    options: Mapping[str, object] | None = None,
    **kwargs: object,
) -> MemoryExplanation:
    """What the graphs of ``torch.compile(function, backend="shardc", options=options)`` need at most, called
    like this.

    Compiles and calls ``function`` once. The backward graph is there if some result needs gradients.
    """
    with collect_fusion(), collect_peaks() as graphs:
        call_compiled(function, args, kwargs, options)
    return MemoryExplanation(graphs)
