"""0-d CPU tensors in a GPU graph, which ATen accepts, as in ``x * torch.tensor(2.0)``.

A program has one device, so such inputs are copied to it at a call, and CPU results are copied back.
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
    """Numbers of CPU inputs, of those that the graph writes to, and of CPU results."""

    inputs: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    results: tuple[int, ...] = ()


def host_scalars(module: GraphModule, device: torch.device) -> HostScalars:
    """Return the host scalars of a graph for which ``check_graph`` returned ``device``."""

    def on_host(nodes: Sequence[Argument]) -> tuple[int, ...]:
        values = [values_of(node) if isinstance(node, Node) else () for node in nodes]
        return tuple(n for n, own in enumerate(values) if any(v.device.type == "cpu" for v in own))

    if device.type == "cpu":
        return HostScalars()
    inputs, written = on_host(placeholders(module.graph)), written_inputs(module.graph)
    return HostScalars(inputs, tuple(n for n in inputs if n in written), on_host(outputs(module.graph)))
