"""Speech recognition: convolutions over a spectrogram, a transformer, and a letter for each frame.

python examples/speech.py
shardc compile examples/speech.py --mesh data=2,tensor=2 --plan 'zero2*tensor' -o out/
"""

import torch
from torch import nn

import shardc

LETTERS, BANDS = 28, 40


class Recognizer(nn.Module):
    """Model of logits [B, T / 2, letters] from spectrograms [B, bands, T]."""

    def __init__(self, size=64):
        super().__init__()
        self.reduce = nn.Conv1d(BANDS, size, 3, stride=2, padding=1)
        self.layer = nn.TransformerEncoderLayer(size, 4, 128, dropout=0.0, batch_first=True)
        self.letters = nn.Linear(size, LETTERS)

    def forward(self, sound, text):
        frames = nn.functional.gelu(self.reduce(sound)).transpose(1, 2)
        return self.letters(self.layer(frames))


def loss(output, batch):
    """Return the cross entropy of each frame with its letter."""
    return nn.functional.cross_entropy(output.flatten(0, 1), batch["text"].flatten())


def build():
    """Return the model, its optimizer, the loss, and a batch of spectrograms and their frames' letters."""
    torch.manual_seed(0)
    model = Recognizer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return (
        model,
        optimizer,
        {"sound": torch.randn(8, BANDS, 32), "text": torch.randint(0, LETTERS, (8, 16))},
        loss,
    )


def main():
    """Prove the step on simulated devices, then train on this one."""
    proof = shardc.compile_step(
        *build()[:3], loss=loss, mesh={"data": 2, "tensor": 2}, plan="zero2*tensor"
    ).check()
    print("proved" if proof.passed else proof.render())
    model, optimizer, batch, _ = build()
    step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 1})
    for number in range(10):
        print(f"step {number} loss {float(step(batch)):.4f}")


if __name__ == "__main__":
    main()
