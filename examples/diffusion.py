"""Denoising diffusion: a small transformer learns the noise that was added to random patches.

python examples/diffusion.py
shardc compile examples/diffusion.py --mesh data=2,tensor=2 --plan 'data*tensor' -o out/
"""

import torch
from torch import nn

import shardc

TIMES = 100
SIGNAL = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES), 0)
"""Fraction of the image that is left after each step of noise (Ho et al. 2020)."""


class Denoiser(nn.Module):
    """Model that predicts the noise in patches [B, N, D] from the patches and their time [B]."""

    def __init__(self, size=32):
        super().__init__()
        self.time = nn.Embedding(TIMES, size)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.out = nn.Linear(size, size)

    def forward(self, noisy, time, noise):
        x = noisy + self.time(time)[:, None]
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def loss(output, batch):
    """Return the mean squared error of the predicted noise."""
    return nn.functional.mse_loss(output, batch["noise"])


def build():
    """Return the model, its optimizer, the loss, and a batch of noisy patches."""
    torch.manual_seed(0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    clean, noise = torch.randn(8, 16, 32), torch.randn(8, 16, 32)
    time = torch.randint(0, TIMES, (8,))
    signal = SIGNAL[time][:, None, None]
    noisy = signal.sqrt() * clean + (1 - signal).sqrt() * noise
    return model, optimizer, {"noisy": noisy, "time": time, "noise": noise}, loss


def main():
    """Prove the step on simulated devices, then train on this one."""
    proof = shardc.compile_step(
        *build()[:3], loss=loss, mesh={"data": 2, "tensor": 2}, plan="data*tensor"
    ).check()
    print("proved" if proof.passed else proof.render())
    model, optimizer, batch, _ = build()
    step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 1})
    for number in range(10):
        print(f"step {number} loss {float(step(batch)):.4f}")


if __name__ == "__main__":
    main()
