"""Which linear layers of a graph of ``torch.compile`` become kernels with the cross entropy behind them: by the models
of costs, where :mod:`shardc.frontend.linear_losses` finds them.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule
from torch_mlir import ir

from shardc.backends.triton.targets import Target
from shardc.diagnostics.dynamo import GraphNotCompiled
from shardc.driver.fusion import is_explained, note_choices
from shardc.driver.gpu_compile import is_tf32
from shardc.driver.gpu_estimates import Estimator
from shardc.driver.partition import shifted_by
from shardc.driver.piece_model import ModelledMatmuls
from shardc.driver.pipelines import build, run
from shardc.driver.settings import Settings
from shardc.frontend.aot_graph import import_graph
from shardc.frontend.linear_losses import Apart, LinearLoss, find_losses, replace
from shardc.frontend.stack_trace import line_of
from shardc.passes.fuse.explain import Op, Traffic
from shardc.passes.fuse.piece import Verdict


def fuse_losses(joint: GraphModule, settings: Settings, target: Target) -> None:
    """Replaces calls of a joint graph by ops for which there are kernels, where that is worth it; ``explain_fusion`` is
    told of each loss what was chosen, and why.
    """
    model = ModelledMatmuls(Estimator(target, is_tf32()), settings.numerics)
    choices: list[tuple[Op, Verdict]] = []
    for number, found in enumerate(list(find_losses(joint.graph, shifted_by, settings.numerics))):
        if isinstance(found, Apart):
            verdict = Verdict(False, f"with its loss: {found.why}")
        else:
            verdict = _verdict(found, settings, model)
            if verdict.generated:
                replace(found)
        where, product = line_of(found.loss), str(found.product.target).removesuffix(".default")
        choices.append((Op(f"loss {number}", product, where, "", Traffic()), verdict))
    if any(verdict.generated for _, verdict in choices):
        joint.recompile()
    if is_explained():
        note_choices(choices)


def _verdict(loss: LinearLoss, settings: Settings, model: ModelledMatmuls) -> Verdict:
    if settings.has_edges:
        return Verdict(False, "with its loss: edges name the calls of this graph")
    if settings.matmuls == "generated":
        return Verdict(True, "with its loss: as it was asked for")
    if not settings.measured:
        return Verdict(False, "with its loss: matmuls are to stay calls")
    try:
        calls, kernels = (_module(loss, settings.numerics, in_kernels) for in_kernels in (False, True))
    except GraphNotCompiled as error:
        return Verdict(
            False, f"with its loss: it is not imported by itself: {str(error).partition(chr(10))[0]}"
        )
    found = model.compared(calls, kernels, loss.spared_bytes)
    return Verdict(found.generated, f"with its loss: {found.why}")


def _module(loss: LinearLoss, numerics: str, in_kernels: bool) -> ir.Module:
    """A program of a loss alone."""
    graph, inside = Graph(), loss.alone()
    given = dict.fromkeys(value for node in inside for value in node.all_input_nodes if value not in inside)
    copies = {value: graph.placeholder(value.name) for value in given}
    for value, copy in copies.items():
        copy.meta = dict(value.meta)
    for node in inside:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in loss.results])
    if in_kernels:
        (found,) = find_losses(graph, shifted_by, numerics)
        assert isinstance(found, LinearLoss)
        replace(found)
    module = import_graph(GraphModule(torch.nn.Module(), graph), "forward").module
    run(module, build("torch-share"), verify_each=False)
    return module
