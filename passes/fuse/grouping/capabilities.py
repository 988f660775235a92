"""What kernels of a target can hold besides what those of all targets do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """``any_attention``: of any number of rows, in competition with libraries, but none of rows whose place
    is known only at run time. ``grouped_matmuls``: products of groups of rows with a matrix each.
    ``linear_losses``: linear cross entropies without logits in memory. ``pooled_results``: results lie in
    memory that is kept from call to call (:mod:`shardc.runtime.kernels.pool`); ATen's is mapped anew.
    ``depthwise``: depthwise convolutions with large results are kernels, which beat the library's.
    """

    any_attention: bool = False
    grouped_matmuls: bool = False
    linear_losses: bool = False
    pooled_results: bool = False
    depthwise: bool = False


ALL = Capabilities(any_attention=True, grouped_matmuls=True, linear_losses=True)
