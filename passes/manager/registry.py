"""Registry of passes. A new pass adds one line here; its module is imported at first use."""

from __future__ import annotations

from importlib import import_module

from shardc.passes.manager.base import Pass

PASSES: dict[str, str] = {
    "dist-accumulate": "shardc.passes.accumulate.dist_accumulate:DistAccumulate",
    "dist-apply-plan": "shardc.passes.plan.dist_apply_plan:DistApplyPlan",
    "dist-combine": "shardc.passes.optimize.dist_combine:DistCombine",
    "dist-constrain": "shardc.passes.plan.dist_constrain:DistConstrain",
    "dist-dispatch": "shardc.passes.experts.dist_dispatch:DistDispatch",
    "dist-insert-reshards": "shardc.passes.partition.dist_insert_reshards:DistInsertReshards",
    "dist-interleave": "shardc.passes.interleave.dist_interleave:DistInterleave",
    "dist-pad": "shardc.passes.pad.dist_pad:DistPad",
    "dist-partition": "shardc.passes.partition.dist_partition:DistPartition",
    "dist-propagate": "shardc.passes.propagate.dist_propagate:DistPropagate",
    "dist-search": "shardc.passes.search.dist_search:DistSearch",
    "dist-share-products": "shardc.passes.products.dist_share_products:DistShareProducts",
    "kern-extern": "shardc.passes.extern.kern_extern:KernExtern",
    "kern-fuse": "shardc.passes.fuse.kern_fuse:KernFuse",
    "kern-space": "shardc.tuner.space.kern_space:KernSpace",
    "pipe-cut": "shardc.passes.pipeline.pipe_cut:PipeCut",
    "torch-accumulate": "shardc.passes.accumulate.torch_accumulate:TorchAccumulate",
    "torch-group-queries": "shardc.passes.ingest.torch_group_queries:TorchGroupQueries",
    "torch-guard-experts": "shardc.passes.experts.torch_guard_experts:TorchGuardExperts",
    "torch-lift-bmm": "shardc.passes.ingest.torch_lift_bmm:TorchLiftBmm",
    "torch-channels-last": "shardc.passes.extern.torch_channels_last:TorchChannelsLast",
    "torch-even-windows": "shardc.passes.pad.torch_even_windows:TorchEvenWindows",
    "torch-lift-pads": "shardc.passes.pad.torch_lift_pads:TorchLiftPads",
    "torch-lift-convolutions": "shardc.passes.ingest.torch_lift_convolutions:TorchLiftConvolutions",
    "torch-lift-experts": "shardc.passes.experts.torch_lift_experts:TorchLiftExperts",
    "torch-lift-repeats": "shardc.passes.ingest.torch_lift_repeats:TorchLiftRepeats",
    "torch-lift-reshapes": "shardc.passes.ingest.torch_lift_reshapes:TorchLiftReshapes",
    "torch-recompute": "shardc.passes.recompute.torch_recompute:TorchRecompute",
    "torch-reduce-dtype": "shardc.passes.reduce.torch_reduce_dtype:TorchReduceDtype",
    "torch-round-pads": "shardc.passes.pad.torch_round_pads:TorchRoundPads",
    "torch-share": "shardc.passes.ingest.torch_share:TorchShare",
    "torch-split-reductions": "shardc.passes.propagate.split.torch_split_reductions:TorchSplitReductions",
    "verify-level": "shardc.passes.manager.verify_level:VerifyLevel",
}
"""Pass name -> ``module:ClassName``."""


def pass_class(name: str) -> type[Pass]:
    """Return the class of the pass ``name``. Raises KeyError."""
    module, _, class_name = PASSES[name].partition(":")
    return getattr(import_module(module), class_name)
