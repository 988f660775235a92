"""The option ``recompute``: forward ops that backward runs again instead of keeping their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from shardc.diagnostics.passes.pipeline import WrongRecompute

Policy = Literal["none", "full", "selective"]
"""Policies of recomputation.

``none``: keep everything that backward reads. ``full``: keep only the inputs of each repeated layer.
``selective``: keep results of matmuls, convolutions, attention and
communication; run pointwise ops, norms, softmaxes and embeddings again. In a pipeline, policies of single
stages, and one policy for a model without repeated layers, are of whole stages: ``full`` then keeps only the
inputs of a stage.
"""
Recompute = Policy | tuple[str, ...]
"""One policy, one for each pipeline stage, or patterns of module names that are recomputed in full."""
POLICIES: tuple[str, ...] = get_args(Policy)


def read_recompute(text: str) -> str | list[str]:
    """Parse ``full`` as a policy, ``full,none`` or ``layers.*`` as lists."""
    return text if text in POLICIES else [part.strip() for part in text.split(",")]


def is_of_stages(recompute: Recompute) -> bool:
    """Return whether it is a list of policies, one for each stage."""
    return not isinstance(recompute, str) and all(item in POLICIES for item in recompute)


def policies_of(given: str | Sequence[str], stages: int) -> tuple[str, ...]:
    """Return one policy for each stage. Raises WrongRecompute."""
    named = (given,) * stages if isinstance(given, str) else tuple(given)
    if len(named) != stages:
        problem = f"recompute= has policies for {len(named)} stages, but the step has {stages}"
        raise WrongRecompute(problem=problem, nearest=repr([*named, *["none"] * stages][:stages]))
    return named
