"""Decides which graphs can be CUDA graphs, and which of their inputs and results are copied."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from shardc.dynamo.cuda_graph import GraphPlan, refuse
from shardc.frontend.importing.recorder import BACKWARD
from shardc.frontend.nodes import placeholders, written_inputs
from shardc.runtime.comm.connect import backend_of
from shardc.runtime.torch_private import OpOverload, TracingContext, process_group

COLLECTIVES = ("_c10d_functional", "c10d_functional")


def graph_plan(
    graph: GraphModule, phase: str, is_inference: bool, device: torch.device, constants: int
) -> GraphPlan | None:
    """Return how to capture the program of ``graph``; None, after a warning, if it cannot be captured.

    ``constants`` is the number of constants that follow its inputs. AOTAutograd's metadata is needed, so this
    is called while AOTAutograd compiles the graph.
    """
    if why := _why_not(graph, device):
        refuse(why)
        return None
    count, written = len(placeholders(graph.graph)), frozenset(written_inputs(graph.graph))
    own = range(count, count + constants)
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if phase == BACKWARD:
        return GraphPlan(frozenset(own), written, 0)
    stays = frozenset([*own, *(() if metadata is None else metadata.static_input_indices)])
    return GraphPlan(stays, written, None if is_inference or metadata is None else metadata.num_forward)


def _why_not(graph: GraphModule, device: torch.device) -> str:
    """Say why a program of the graph cannot be captured; empty if it can."""
    if device.type != "cuda":
        return f"CUDA graphs are for GPUs, and its tensors are on {device}"
    for node in graph.graph.nodes:
        if isinstance(node.target, OpOverload) and node.target.namespace in COLLECTIVES:
            names = [arg for arg in node.args if isinstance(arg, str)]
            if names and (backend := backend_of(process_group(names[-1]), device)) != "nccl":
                return f"{node.target} goes over {backend}, which works on the host"
    return ""
