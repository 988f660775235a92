"""0-d tensors of the CPU in a graph of a GPU, which ATen takes beside tensors of the GPU:
``x * torch.tensor(2.0)``.

A program has one device. So such inputs are copied to it when it is called, and results that the graph makes
on the CPU are copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from shardc.frontend.nodes import outputs, placeholders, values_of, written_inputs


@dataclass(frozen=True)
class HostScalars:
    """Numbers of inputs on the CPU, of those among them that the graph writes to, and of results there."""

    inputs: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    results: tuple[int, ...] = ()


def host_scalars(module: GraphModule, device: torch.device) -> HostScalars:
    """The host scalars of a graph that ``check_graph`` says is one of ``device``."""

    def on_host(nodes: Sequence[Argument]) -> tuple[int, ...]:
        values = [values_of(node) if isinstance(node, Node) else () for node in nodes]
        return tuple(n for n, own in enumerate(values) if any(v.device.type == "cpu" for v in own))

    if device.type == "cpu":
        return HostScalars()
    inputs, written = on_host(placeholders(module.graph)), written_inputs(module.graph)
    return HostScalars(inputs, tuple(n for n in inputs if n in written), on_host(outputs(module.graph)))
