"""Train a small GAN on made images, two optimizers in turn.

torchrun --nproc-per-node 2 examples/training/gan.py --rounds 20
"""

import argparse
import os

import torch
from torch import nn
from torch.nn import functional as F

import shardc

NOISE = 8


def make_generator() -> nn.Module:
    return nn.Sequential(
        nn.Linear(NOISE, 16 * 4 * 4),
        nn.Unflatten(1, (16, 4, 4)),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(16, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 1, 3, padding=1),
        nn.Tanh(),
    )


def make_critic() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(16 * 2 * 2, 1),
    )


class CriticLoss(nn.Module):
    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, images: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        made = self.generator(noise).detach()
        return F.softplus(-self.critic(images)).mean() + F.softplus(self.critic(made)).mean()


class GeneratorLoss(nn.Module):
    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return F.softplus(-self.critic(self.generator(noise))).mean()


def made_images(rows: int, random: torch.Generator) -> torch.Tensor:
    """Squares [rows, 1, 8, 8] of a random brightness at a random place."""
    places, bright = torch.randint(5, (rows, 2), generator=random), torch.rand(rows, generator=random)
    images = -torch.ones(rows, 1, 8, 8)
    for image, (row, column), value in zip(images, places.tolist(), bright.tolist(), strict=True):
        image[0, row : row + 4, column : column + 4] = value
    return images


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()

    torch.manual_seed(0)
    random = torch.Generator().manual_seed(1)
    generator, critic = make_generator(), make_critic()
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    critic_loss, generator_loss = CriticLoss(generator, critic), GeneratorLoss(generator, critic)

    images, noise = torch.zeros(16, 1, 8, 8), torch.zeros(16, NOISE)
    mesh = {"data": int(os.environ["WORLD_SIZE"])}
    critic_step = shardc.compile_step(critic_loss, critic_optimizer, (images, noise), mesh=mesh)
    generator_step = shardc.compile_step(generator_loss, generator_optimizer, (noise,), mesh=mesh)

    for i in range(args.rounds):
        images, noise = made_images(16, random), torch.randn(16, NOISE, generator=random)
        loss = critic_step((images, noise))
        of_generator = generator_step((noise,))
        print(f"round {i} critic {loss.item():.6f} generator {of_generator.item():.6f}")


if __name__ == "__main__":
    main()
