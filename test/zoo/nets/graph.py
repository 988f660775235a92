"""Message passing on a graph: gather the ends of the edges, a message for each, scatter-add into
the nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nets.net import Net

NODES, EDGES, WIDTH = 16, 48, 16


class GraphLayer(nn.Module):
    """Mean of messages with a softmax gate over a node's incoming edges."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.gate = nn.Linear(2 * WIDTH, 1)
        self.update = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        ends = torch.cat([nodes[source], nodes[target]], -1)
        weight = self.gate(ends).sigmoid().squeeze(-1)
        total = nodes.new_zeros(NODES).scatter_add(0, target, weight).clamp_min(1e-6)
        messages = self.message(ends) * (weight / total[target]).unsqueeze(-1)
        gathered = torch.zeros_like(nodes).index_add(0, target, messages)
        return nodes + F.relu(self.update(torch.cat([nodes, gathered], -1)))


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, WIDTH)
        self.layers = nn.ModuleList([GraphLayer(), GraphLayer()])
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, features: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
        nodes = self.embed(features)
        for layer in self.layers:
            nodes = layer(nodes, edges)
        return F.cross_entropy(self.head(nodes), labels)


NET = Net(
    GraphNet,
    lambda: (torch.randn(NODES, 8), torch.randint(0, NODES, (2, EDGES)), torch.randint(0, 3, (NODES,))),
)
