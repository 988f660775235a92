"""Passes that shard a step, in order, up to each level."""

from __future__ import annotations

from shardc.cost.cluster.cluster import Cluster
from shardc.options.experts import Experts
from shardc.options.recompute import Recompute
from shardc.passes.accumulate.dist_accumulate import DistAccumulate
from shardc.passes.experts.dist_dispatch import DistDispatch
from shardc.passes.experts.torch_guard_experts import TorchGuardExperts
from shardc.passes.manager.base import Pass
from shardc.passes.manager.pass_pipelines import build
from shardc.passes.manager.verify_level import VerifyLevel
from shardc.passes.partition.dist_insert_reshards import DistInsertReshards
from shardc.passes.partition.dist_partition import DistPartition
from shardc.passes.plan.dist_constrain import DistConstrain
from shardc.passes.propagate.dist_propagate import DistPropagate
from shardc.passes.recompute.torch_recompute import TorchRecompute
from shardc.passes.search.dist_search import DistSearch
from shardc.step.micro_batches import MicroBatches

SHARE = "torch-share{creations=false}"
_LIFT = "torch-lift-bmm,torch-lift-convolutions,torch-lift-experts,torch-lift-repeats,torch-lift-reshapes"
_INGEST = f"{_LIFT},{SHARE}"
_PROPAGATE = "dist-share-products,split,dist-propagate"


def passes_to_level_3(
    pipeline: str,
    micro_batches: MicroBatches | None,
    cluster: Cluster | None,
    reshard_after_forward: bool,
    experts: Experts,
    verify: bool,
    search: DistSearch | None,
) -> list[Pass]:
    """Return the passes from a plan's shardings to level 3.

    ``pipeline``: the axis of stages, or empty. ``search``: the pass that finds the plan, or writes a plan
    found before.
    """
    steps = [*passes_to_level_2(reshard_after_forward, experts), VerifyLevel(2), DistPartition(cluster)]
    if search is not None:
        at = next(place for place, step in enumerate(steps) if isinstance(step, DistPropagate))
        steps[at] = search
    if micro_batches is not None:
        steps.append(DistAccumulate(micro_batches.count, micro_batches.whole))
    if not pipeline:  # dist-combine could pack collectives of several stages together
        steps += build("dist-combine")
    steps.append(VerifyLevel(3))
    return [step for step in steps if verify or not isinstance(step, VerifyLevel)]


def passes_to_level_2(reshard_after_forward: bool, experts: Experts) -> list[Pass]:
    """Return the passes from a plan's shardings to level 2."""
    given = experts.capacity or 0.0, experts.chunks, experts.group or 0, experts.copies
    dispatch = DistDispatch(*given)
    return [DistConstrain(), dispatch, *build(_PROPAGATE), DistInsertReshards(reshard_after_forward)]


def passes_to_level_1(experts: Experts) -> list[Pass]:
    """Return the passes from the capture to level 1."""
    guards = [TorchGuardExperts()] if experts.is_guarded else []
    return [*build(_INGEST), *guards]


def recompute_passes(recompute: Recompute) -> list[Pass]:
    """Return the passes that recompute modules, and then share equal calls across modules."""
    policy = recompute if isinstance(recompute, str) else "full"
    return [TorchRecompute(policy), *build(SHARE)]
