"""Image classification: a convolutional net with batch norm and residuals, trained on random images.

python examples/vision.py
shardc compile examples/vision.py --mesh data=4 --plan zero1 -o out/
"""

import torch
from torch import nn

import shardc


class Block(nn.Module):
    """Two convolutions and a shortcut, from [B, C, H, W] to the same shape."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x):
        hidden = self.norms[0](self.first(x)).relu()
        return (x + self.norms[1](self.second(hidden))).relu()


class Net(nn.Module):
    """Model of logits [B, 10] from images [B, 3, H, W]; only the loss reads the labels."""

    def __init__(self):
        super().__init__()
        head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Block(16), Block(16), head)

    def forward(self, images, labels):
        return self.layers(images)


def loss(output, batch):
    """Return the cross entropy of logits [B, classes] with labels [B]."""
    return nn.functional.cross_entropy(output, batch[1])


def build():
    """Return the model, its optimizer, the loss, and a batch of images and labels."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return model, optimizer, (torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))), loss


def main():
    """Prove the step on simulated devices, then train on this one."""
    proof = shardc.compile_step(*build()[:3], loss=loss, mesh={"data": 2}, plan="zero1").check()
    print("proved" if proof.passed else proof.render())
    model, optimizer, batch, _ = build()
    step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 1})
    for number in range(10):
        print(f"step {number} loss {float(step(batch)):.4f}")


if __name__ == "__main__":
    main()
