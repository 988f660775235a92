"""0-d tensors of the CPU in a graph of a GPU, which ATen takes beside tensors of the GPU:
``x * torch.tensor(2.0)``.

A program has one device. So such inputs are copied to it when it is called, and results that the graph makes
on the CPU are copied back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule


@dataclass(frozen=True)
class HostScalars:
    """Numbers of inputs that are on the CPU, of those among them that the graph writes to, and of results
    there.
    """

    inputs: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    results: tuple[int, ...] = ()


def host_scalars(module: GraphModule, device: torch.device) -> HostScalars:
    """Those of a graph that :func:`~shardc.frontend.graph.graph_check.check_graph` says is one of
    ``device``.
    """
    from shardc.frontend.graph.graph_check import (  # loads MLIR, which a start from caches does without
        final_writes,
        values_of,
    )

    def is_host(node: torch.fx.Node) -> bool:
        return any(value.device.type == "cpu" for value in values_of(node))

    if device.type == "cpu":
        return HostScalars()
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    inputs = [number for number, node in enumerate(nodes) if is_host(node)]
    into = {node.args[0] for node in final_writes(module.graph)}
    returned = module.graph.output_node().args[0]
    results = [n for n, node in enumerate(returned) if isinstance(node, torch.fx.Node) and is_host(node)]
    return HostScalars(tuple(inputs), tuple(n for n in inputs if nodes[n] in into), tuple(results))
