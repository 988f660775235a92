"""Optional capabilities of a target's kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """Capabilities that not every target has.

    ``any_attention``: attention with any number of rows competes with libraries, unless the position of rows
    is known only at run time. ``grouped_matmuls``: products of groups of rows with one matrix each.
    ``linear_losses``: linear cross entropies that do not store logits. ``pooled_results``: results use memory
    that is kept from call to call (:mod:`shardc.runtime.kernels.pool`), while ATen maps new memory.
    ``depthwise``: depthwise convolutions with large results become kernels, which are faster than the
    library's. ``convolutions``: calls of ``shardc::convolution_direct`` become kernels.
    ``scans``: cumulated sums and products along the last dim become kernels.
    """

    any_attention: bool = False
    grouped_matmuls: bool = False
    linear_losses: bool = False
    pooled_results: bool = False
    depthwise: bool = False
    convolutions: bool = False
    scans: bool = False


ALL = Capabilities(any_attention=True, grouped_matmuls=True, linear_losses=True)
