"""Replaces a linear layer with a cross entropy after it by one op and its backward op.

Forward and backward become separate graphs, and the backward must not read what a kernel in the forward does
not keep. So the calls are replaced in the joint graph, before it is split.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule
from torch_mlir import ir

from shardc.backends.base import Target
from shardc.compiler.modelled_regions import ModelledRegions
from shardc.diagnostics.dynamo import GraphNotCompiled
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import target_name
from shardc.dialects.location import source_line
from shardc.dynamo.explanations import is_explained, note_choices
from shardc.dynamo.settings import Settings
from shardc.frontend.graph.raised import RewrittenGraph
from shardc.frontend.operators.decompositions import decomposition_table
from shardc.passes.fuse.grouping.explain import Op, Traffic
from shardc.passes.fuse.grouping.region import Verdict, loss_region
from shardc.passes.fuse.linear_loss.find import Apart, LinearLoss, LossFinder
from shardc.passes.fuse.linear_loss.write import raise_loss
from shardc.passes.fuse.reading.read import steps_of

aten = torch.ops.aten
_DECOMPOSED = (aten.nll_loss_forward.default, aten.nll_loss_backward.default)
_LOSSES = (*_DECOMPOSED, aten.gather.default)


def fuse_losses(joint: GraphModule, settings: Settings, target: Target) -> None:
    """Replace calls of a joint graph by ops that have kernels, where that is estimated to pay.

    ``explain_fusion`` reports for each loss what was chosen, and why.
    """
    if not any(node.target in _LOSSES for node in joint.graph.nodes):
        return
    try:
        graph = RewrittenGraph(joint, {op: decomposition_table()[op] for op in _DECOMPOSED})
    except GraphNotCompiled:  # forward and backward are rejected, too, and that warns the user
        return
    found = list(_found(graph.block, settings, target))
    builder, taken = CallBuilder(graph.block), dict[ir.Value, ir.Value]()
    for loss, _, verdict in found:
        if isinstance(loss, LinearLoss) and verdict.generated:
            raised = raise_loss(loss.first, builder)
            taken |= {} if raised is None else raised.taken
    if taken:
        graph.take(taken)
        joint.recompile()
    if is_explained():
        note_choices([(op, verdict) for _, op, verdict in found])


def _found(
    block: ir.Block, settings: Settings, target: Target
) -> Iterator[tuple[LinearLoss | Apart, Op, Verdict]]:
    """Yield the losses of a block with their matmuls, and whether they become ops."""
    rounding = settings.numerics.rounding
    model = ModelledRegions(target, rounding, torch.get_float32_matmul_precision() != "highest")
    steps = steps_of(block)
    for number, loss in enumerate(LossFinder(steps, rounding).find(lambda _: True)):
        if isinstance(loss, Apart):
            first, second = loss.first, loss.second
        else:
            first, second = loss.forward[0], loss.softmax
        name, where = target_name(steps[first]), source_line(steps[second].location)
        verdict = _verdict(steps, loss, settings, model)
        verdict = Verdict(verdict.generated, f"with its loss: {verdict.why}")
        yield loss, Op(f"loss {number}", name, where, "", Traffic()), verdict


def _verdict(
    steps: list[ir.Operation], loss: LinearLoss | Apart, settings: Settings, model: ModelledRegions
) -> Verdict:
    if isinstance(loss, Apart):
        return Verdict(False, loss.why)
    if settings.kernels.has_edges:
        return Verdict(False, "edges name the calls of this graph")
    if settings.kernels.matmuls == "generated":
        return Verdict(True, "as it was asked for")
    if not settings.kernels.is_measured:
        return Verdict(False, "matmuls are to stay calls")
    region = loss_region(0, steps, loss, {})
    assert region is not None, "its sizes are known"
    return model(region)
