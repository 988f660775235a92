"""One device: torch.compile with shardc's kernels, compared with eager PyTorch.

python examples/torch_compile.py
"""

import torch
from torch import nn


class Gated(nn.Module):
    """Gated MLP with a norm, from [B, D] to the same shape."""

    def __init__(self, size=64):
        super().__init__()
        self.norm, self.gate, self.up = nn.LayerNorm(size), nn.Linear(size, 128), nn.Linear(size, 128)
        self.down = nn.Linear(128, size)

    def forward(self, x):
        hidden = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(hidden)) * self.up(hidden))


def train(forward, model, steps=10):
    """Train and return the losses."""
    torch.manual_seed(1)
    x, target = torch.randn(2, 32, 64)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(steps):
        loss = nn.functional.mse_loss(forward(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    """Train twice from the same weights: with shardc and without."""
    torch.manual_seed(0)
    eager = Gated()
    compiled = Gated()
    compiled.load_state_dict(eager.state_dict())
    expected = train(eager, eager)
    found = train(torch.compile(compiled, backend="shardc"), compiled)
    for number, loss in enumerate(found):
        print(f"step {number} loss {loss:.4f}")
    close = all(abs(a - b) < 1e-4 for a, b in zip(expected, found, strict=True))
    print("proved" if close else f"eager has {expected}")


if __name__ == "__main__":
    main()
