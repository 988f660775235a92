"""Estimates of kernels and calls by cost models, without a trial."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost.kernel import Estimate


@dataclass(frozen=True)
class Estimated:
    """Kernel or ATen call of a program. ``times``: runs in a step. ``estimate``: cost of one run."""

    name: str
    is_kernel: bool
    where: str | None
    times: int
    estimate: Estimate
