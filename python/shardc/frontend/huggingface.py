"""What a model from ``transformers`` needs while its step is traced; other models are traced as they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.frontend import DataDependent, TraceFailed
from shardc.frontend.constant_value import ask

Result = TypeVar("Result")


def prepared(model: torch.nn.Module, trace: Callable[[], Result]) -> Result:
    """Runs ``trace`` with the settings of transformers' models that a training step wants, restored after.

    If the trace fails on data-dependent code and the model has experts, it is tried again with batched experts.
    """
    if "transformers" not in sys.modules:
        return trace()
    configs = _configs(model)
    with ExitStack() as stack:
        stack.enter_context(_environment("TRANSFORMERS_SDPA_FORCE_GQA", "1"))
        stack.enter_context(_unpacked_sequences())
        for config in configs:
            if hasattr(config, "use_cache"):
                stack.enter_context(_attribute(config, "use_cache", False))
        try:
            return trace()
        except ShardcError as error:
            experts = [c for c in configs if getattr(c, "_experts_implementation", None) not in (None, "batched_mm")]
            if not isinstance(error, (DataDependent, TraceFailed)) or not experts:
                raise
        for config in experts:
            stack.enter_context(_attribute(config, "_experts_implementation", "batched_mm"))
        return trace()


def _configs(model: torch.nn.Module) -> list[Any]:
    """Each configuration object of the modules once; transformers' submodules share theirs or have their own."""
    found = {id(c): c for m in model.modules() if (c := getattr(m, "config", None)) is not None}
    return [config for config in found.values() if hasattr(config, "to_dict")]


@contextmanager
def _attribute(target: Any, name: str, value: Any) -> Iterator[None]:
    saved = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, saved)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    saved = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if saved is None:
            del os.environ[name]
        else:
            os.environ[name] = saved


@contextmanager
def _unpacked_sequences() -> Iterator[None]:
    """Lets transformers see that positions made by ``arange`` are one sequence.

    While tracing it gives up on that question and builds a full mask, which would keep every attention from being
    causal by flag.
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
