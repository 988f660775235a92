"""Recommendation (DLRM): tables of embeddings that are sharded by rows, and a small net on the embeddings.

python examples/recommendation.py
"""

import torch
from torch import nn

import shardc

TABLES, ROWS, WIDTH = 4, 1000, 16
PLAN = {"tables.*.weight": ["tensor"], "numbers": ["data"], "ids": ["data"], "clicked": ["data"]}
"""Plan that shards rows of tables over one axis, and batches over the other."""


class Ranker(nn.Module):
    """Model of a score [B] from numbers [B, 8] and ids [B, tables]."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU())
        self.top = nn.Sequential(nn.Linear((TABLES + 1) ** 2, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, numbers, ids, clicked):
        found = [table(ids[:, number]) for number, table in enumerate(self.tables)]
        features = torch.stack([self.bottom(numbers), *found], dim=1)
        return self.top((features @ features.transpose(1, 2)).flatten(1)).squeeze(1)


def loss(output, batch):
    """Return the binary cross entropy of scores with clicks."""
    return nn.functional.binary_cross_entropy_with_logits(output, batch["clicked"])


def build():
    """Return the model, its optimizer, the loss, and a batch of numbers, ids and clicks."""
    torch.manual_seed(0)
    model = Ranker()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    ids, clicked = torch.randint(0, ROWS, (16, TABLES)), torch.randint(0, 2, (16,)).float()
    return model, optimizer, {"numbers": torch.randn(16, 8), "ids": ids, "clicked": clicked}, loss


def main():
    """Prove the step on simulated devices, then train on this one."""
    proof = shardc.compile_step(*build()[:3], loss=loss, mesh={"data": 2, "tensor": 2}, plan=PLAN).check()
    print("proved" if proof.passed else proof.render())
    model, optimizer, batch, _ = build()
    step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 1})
    for number in range(10):
        print(f"step {number} loss {float(step(batch)):.4f}")


if __name__ == "__main__":
    main()
