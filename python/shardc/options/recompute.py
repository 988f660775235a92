"""What a backward computes again of the forward, as a user says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from shardc.diagnostics.passes.pipeline import WrongRecompute

Policy = Literal["none", "full", "selective"]
"""``none``: what backward reads is kept. ``full``: of each repeated layer, or of each micro-batch of a
pipeline's stage, the inputs alone. ``selective``: of what backward needs, results of matmuls, convolutions,
attention and communication are kept; pointwise ops, norms, softmaxes and embeddings run again.
"""
Recompute = Policy | tuple[str, ...]
"""A policy, one for each stage of a pipeline, or patterns of module names that are recomputed in full."""
POLICIES: tuple[str, ...] = get_args(Policy)


def read_recompute(text: str) -> str | list[str]:
    """``full``, or ``full,none`` and ``layers.*`` as lists."""
    return text if text in POLICIES else [part.strip() for part in text.split(",")]


def is_of_stages(recompute: Recompute) -> bool:
    """Whether policies are listed, one for each stage."""
    return not isinstance(recompute, str) and all(item in POLICIES for item in recompute)


def policies_of(given: str | Sequence[str], stages: int) -> tuple[str, ...]:
    """One policy for each stage. Raises WrongRecompute."""
    named = (given,) * stages if isinstance(given, str) else tuple(given)
    if len(named) != stages:
        problem = f"recomputation is given for {len(named)} stages, of {stages}"
        raise WrongRecompute(problem=problem, nearest=repr([*named, *["none"] * stages][:stages]))
    return named
