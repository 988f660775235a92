"""Which of a graph's inputs and results a CUDA graph copies, by what AOTAutograd says of them; and which
graphs have none.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from shardc.dynamo.cuda_graph import GraphPlan, refuse
from shardc.frontend.graph.graph_check import final_writes
from shardc.frontend.importing.recorder import BACKWARD
from shardc.runtime.comm.connect import backend_of
from shardc.runtime.torch_private import OpOverload, TracingContext, process_group

COLLECTIVES = ("_c10d_functional", "c10d_functional")


def graph_plan(
    graph: GraphModule, phase: str, is_inference: bool, device: torch.device, constants: int
) -> GraphPlan:
    """How the program of ``graph`` is captured; where it cannot be, a warning says why. ``constants`` follow
    its inputs.

    Called while AOTAutograd compiles the graph.
    """
    why = _why_not(graph, device)
    if why:
        refuse(why)
        return GraphPlan(refused=why)
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    into = {node.args[0] for node in final_writes(graph.graph)}
    written = frozenset(n for n, node in enumerate(nodes) if node in into)
    own = range(len(nodes), len(nodes) + constants)
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if phase == BACKWARD:
        return GraphPlan(frozenset(own), written, 0)
    stays = frozenset([*own, *(() if metadata is None else metadata.static_input_indices)])
    return GraphPlan(stays, written, None if is_inference or metadata is None else metadata.num_forward)


def _why_not(graph: GraphModule, device: torch.device) -> str:
    """Empty if a program of the graph can be captured."""
    if device.type != "cuda":
        return f"CUDA graphs are for GPUs, and its tensors are on {device}"
    for node in graph.graph.nodes:
        if isinstance(node.target, OpOverload) and node.target.namespace in COLLECTIVES:
            names = [arg for arg in node.args if isinstance(arg, str)]
            if names and (backend := backend_of(process_group(names[-1]), device)) != "nccl":
                return f"{node.target} goes over {backend}, which works on the host"
    return ""
