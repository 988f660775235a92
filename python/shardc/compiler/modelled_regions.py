"""Decides by the target's cost model whether matmuls and attention go into kernels or stay library calls.

This serves devices that are not present: a region's cost is estimated both ways.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.backends.base import Target
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.text import size_text
from shardc.passes.fuse.grouping.region import EveryRegion, Region, Verdict
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.manager.program import copy_module

SURE = 0.97
"""Kernels must be estimated below this share of the calls' time, since the models are inexact."""
SPARED = 1.5
"""Share of the calls' time that kernels may take if they keep logits out of memory.

Such kernels multiply eight times instead of six. That costs a third of a FLOP per byte of logits and
element of a row. Recomputing a layer to save a byte of activations costs twice as much.
"""

NO_KERNEL = "no kernel for"
"""Start of a verdict for a region that has no kernel to choose."""


def text_of(region: Region) -> str:
    """Return a text that is equal for equal regions."""
    return region.module.operation.get_asm(enable_debug_info=False)


@dataclass(frozen=True)
class ModelledRegions:
    """Decide on regions by the estimates of both programs; equal regions are estimated once.

    ``rounding`` is as for ``kern-fuse``, ``tf32`` as for :meth:`Target.estimate`.
    """

    target: Target
    rounding: str = "fused"
    tf32: bool = False
    _known: dict[str, Verdict] = field(default_factory=dict, repr=False)

    def __call__(self, region: Region) -> Verdict:
        text = text_of(region)
        if text not in self._known:
            self._known[text] = self._compared(region.module, region.spared_bytes)
        return self._known[text]

    def _compared(self, region: ir.Module, spared_bytes: int) -> Verdict:
        """Compare the estimates of the region with library calls and of the region as kernels."""
        target = self.target
        try:
            called, made = (target.estimate(self._fused(region, kind), self.tf32) for kind in (False, True))
        except ShardcError as error:
            return Verdict(False, f"{NO_KERNEL} {target.name}: {str(error).partition(chr(10))[0]}")
        calls_s = sum(found.times * found.estimate.seconds for found in called)
        kernels_s = sum(found.estimate.seconds for found in made)
        least_s = sum(found.estimate.roofline_s for found in made)
        calls_us, kernels_us, least_us = map(us_text, (calls_s, kernels_s, least_s))
        times = f"{calls_us} as calls, {kernels_us} as kernels, {least_us} by the roofline"
        spared = f"; kernels hold no logits ({size_text(spared_bytes)})" if spared_bytes else ""
        limit_s = (SPARED if spared_bytes else SURE) * calls_s
        return Verdict(kernels_s < limit_s, f"estimated for {target.name}: {times}{spared}")

    def _fused(self, region: ir.Module, generated: bool) -> ir.Module:
        module, choose = copy_module(region), EveryRegion(lambda _: Verdict(generated, ""))
        fuse_module(module, self.rounding, matmuls=choose, capabilities=self.target.capabilities)
        return module


def us_text(seconds: float) -> str:
    """Return a time in microseconds as text."""
    return f"{1e6 * seconds:,.1f} us"
