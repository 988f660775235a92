"""A mixture of experts with data-dependent routing (Switch, Fedus et al. 2021):
top-2 choice, a capacity, dropped tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nets.net import Net

WIDTH, EXPERTS, CAPACITY, LENGTH = 16, 4, 12, 8


class Experts(nn.Module):
    """Each token goes to its two best experts, as long as those have places; an expert has ``CAPACITY`` of
    them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) / 4)
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, WIDTH) / 4)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.router(tokens).softmax(-1)
        weights, chosen = scores.topk(2, -1)
        wanted = F.one_hot(chosen.T.flatten(), EXPERTS)  # first choices before second ones
        place = (wanted.cumsum(0) * wanted).sum(-1) - 1
        kept = place < CAPACITY
        slot = torch.where(kept, chosen.T.flatten() * CAPACITY + place, EXPERTS * CAPACITY)
        source = torch.arange(len(tokens), device=tokens.device).repeat(2)
        slots = tokens.new_zeros(EXPERTS * CAPACITY + 1, WIDTH).index_put((slot,), tokens[source])
        hidden = F.relu(torch.bmm(slots[:-1].view(EXPERTS, CAPACITY, WIDTH), self.up))
        made = F.pad(torch.bmm(hidden, self.down).flatten(0, 1), (0, 0, 0, 1))
        share = (weights.T.flatten() * kept).unsqueeze(-1)
        balance = EXPERTS * (wanted.float().mean(0) * scores.mean(0)).sum()
        return torch.zeros_like(tokens).index_add(0, source, made[slot] * share), balance


class SwitchNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, WIDTH)
        self.experts = nn.ModuleList([Experts(), Experts()])
        self.head = nn.Linear(WIDTH, 32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids).flatten(0, 1)
        loss = x.new_zeros(())
        for layer in self.experts:
            made, balance = layer(x)
            x, loss = x + made, loss + 0.01 * balance
        return loss + F.cross_entropy(self.head(x), ids.flatten())


NET = Net(SwitchNet, lambda: (torch.randint(0, 32, (4, LENGTH)),))
