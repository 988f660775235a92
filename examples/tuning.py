"""Tuning: a few trials of a step's kernels, and the step compiled with the best configurations.

SHARDC_TUNING_DB=/tmp/trials.db python examples/tuning.py
shardc tune examples/tuning.py --seconds 300
"""

import torch
from torch import nn

import shardc


def loss(output, batch):
    """Return the distance of the output from the input."""
    return nn.functional.mse_loss(output, batch[0])


def build():
    """Return the model, its optimizer, a batch, and the loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), (torch.randn(32, 64),), loss


def main():
    """Try eight configurations, prove the step that uses them, and train."""
    print(shardc.tune(__file__, trials=8))
    model, optimizer, batch, _ = build()
    step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 1})
    proof = step.check()
    print("proved" if proof.passed else proof.render())
    for number in range(10):
        print(f"step {number} loss {float(step(batch)):.4f}")


if __name__ == "__main__":
    main()
