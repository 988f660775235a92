"""What a model from ``transformers`` needs while its step is traced; other models are traced as they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch

from shardc.diagnostics.frontend import DataDependent, TraceFailed
from shardc.environment import changed
from shardc.frontend.step.constant_value import ask
from shardc.frontend.step.trace import Trace


def prepared(model: torch.nn.Module, trace: Callable[[], Trace]) -> Trace:
    """Runs ``trace`` with the settings of transformers' models that a training step wants, restored after.

    Experts that loop over token counts cannot be traced, and grouped ones may take ops that transformers
    itself registers, which an artefact would not find: both are traced once more with batched experts.
    """
    if "transformers" not in sys.modules:
        return trace()
    configs = _configs(model)
    experts = [c for c in configs if getattr(c, "_experts_implementation", None) not in (None, "batched_mm")]
    with ExitStack() as stack:
        stack.enter_context(changed({"TRANSFORMERS_SDPA_FORCE_GQA": "1"}))
        stack.enter_context(_unpacked_sequences())
        for config in configs:
            if hasattr(config, "use_cache"):
                stack.enter_context(_attribute(config, "use_cache", False))
        try:
            traced = trace()
            if not (experts and _has_library_ops(traced)):
                return traced
        except (DataDependent, TraceFailed):
            if not experts:
                raise
        for config in experts:
            stack.enter_context(_attribute(config, "_experts_implementation", "batched_mm"))
        return trace()


def _has_library_ops(trace: Trace) -> bool:
    return any(getattr(node.target, "namespace", None) == "transformers" for node in trace.graph.graph.nodes)


def _configs(model: torch.nn.Module) -> list[object]:
    """Each configuration object of the modules once: submodules share theirs or have their own."""
    found = {id(c): c for m in model.modules() if (c := getattr(m, "config", None)) is not None}
    return [config for config in found.values() if hasattr(config, "to_dict")]


@contextmanager
def _attribute(target: object, name: str, value: object) -> Iterator[None]:
    saved = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, saved)


@contextmanager
def _unpacked_sequences() -> Iterator[None]:
    """Lets transformers see that positions made by ``arange`` are one sequence.

    While tracing it gives up on that question and builds a full mask, which would keep every attention from
    being causal by flag.
    """
    masking = sys.modules.get("transformers.masking_utils")
    original = getattr(masking, "find_packed_sequence_indices", None)
    if original is None:
        yield
        return

    def find_packed_sequence_indices(position_ids: torch.Tensor) -> torch.Tensor | None:
        one_sequence = ask(position_ids, lambda positions: bool((positions.diff(dim=-1) == 1).all()))
        return None if one_sequence else original(position_ids)

    with _attribute(masking, "find_packed_sequence_indices", find_packed_sequence_indices):
        yield
