"""Three steps of a small network with an embedding, a norm, dropout-free gating, a loss and AdamW."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(29, 24)
        self.norm = nn.LayerNorm(24)
        self.up, self.gate, self.down = nn.Linear(24, 40), nn.Linear(24, 40), nn.Linear(40, 29)

    def forward(self, ids):
        x = self.norm(self.table(ids))
        logits = self.down(self.up(x) * nn.functional.silu(self.gate(x)))
        return nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 29), ids[:, 1:].reshape(-1))


def run(compile):
    torch.manual_seed(0)
    model, ids = Net(), torch.randint(29, (3, 13))
    forward, optimizer = compile(model), torch.optim.AdamW(model.parameters(), lr=1e-2)
    update = compile(optimizer.step)
    losses = []
    for _ in range(3):
        loss = forward(ids)
        loss.backward()
        update()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, {name: value.detach().clone() for name, value in model.state_dict().items()}
