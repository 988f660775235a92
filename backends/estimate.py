"""What the models of costs say of kernels and calls, without a trial."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost.kernel import Estimate


@dataclass(frozen=True)
class Estimated:
    """A kernel or a call of ATen in a program, how many ``times`` a step runs it, and what one run takes."""

    name: str
    is_kernel: bool
    where: str | None
    times: int
    estimate: Estimate
