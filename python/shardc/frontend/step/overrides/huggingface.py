"""Settings for tracing models of ``transformers``; other models are traced unchanged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch

from shardc.environment import changed
from shardc.frontend.step.constant_value import ask
from shardc.frontend.step.trace import Trace


def prepared(model: torch.nn.Module, trace: Callable[[], Trace]) -> Trace:
    """Run ``trace`` with settings of transformers' models that a training step needs, and restore them.

    Experts are traced with a matrix for each row, which ``torch-lift-experts`` turns into one product. Loops
    over token counts cannot be traced. Grouped products need rows sorted over the whole batch, do not support
    f64, and may be ops that transformers registers itself.
    """
    if "transformers" not in sys.modules:
        return trace()
    with ExitStack() as stack:
        stack.enter_context(changed({"TRANSFORMERS_SDPA_FORCE_GQA": "1"}))
        stack.enter_context(_unpacked_sequences())
        for config in _configs(model):
            if hasattr(config, "use_cache"):
                stack.enter_context(_attribute(config, "use_cache", False))
            if getattr(config, "_experts_implementation", None) is not None:
                stack.enter_context(_attribute(config, "_experts_implementation", "batched_mm"))
        return trace()


def _configs(model: torch.nn.Module) -> list[object]:
    """Return each configuration object of the modules once, since submodules may share them."""
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
    """Let transformers see that positions made by ``arange`` are one sequence.

    While tracing, it skips that check and builds a full mask, which would hide that attention is causal.
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
