"""A recommender after DLRM (Naumov et al. 2019): embedding tables, a bag of items, pairwise
products, an MLP.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nets.net import Net

TABLES, ROWS, WIDTH, BAG = 4, 512, 16, 6


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(TABLES))
        self.bag = nn.EmbeddingBag(ROWS, WIDTH, mode="sum")
        self.bottom = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        pairs = (TABLES + 2) * (TABLES + 1) // 2
        self.top = nn.Sequential(nn.Linear(pairs + WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: Tensor, sparse: Tensor, history: Tensor, clicked: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        looked_up = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        features = torch.stack([bottom, self.bag(history), *looked_up], 1)
        products = features @ features.transpose(1, 2)
        rows, columns = torch.tril_indices(TABLES + 2, TABLES + 2, offset=-1)
        top = self.top(torch.cat([products[:, rows, columns], bottom], 1))
        return F.binary_cross_entropy_with_logits(top.squeeze(1), clicked)


def _batch() -> tuple[Tensor, ...]:
    sparse, history = torch.randint(0, ROWS, (4, TABLES)), torch.randint(0, ROWS, (4, BAG))
    return torch.randn(4, 8), sparse, history, torch.randint(0, 2, (4,)).float()


NET = Net(Recommender, _batch)
