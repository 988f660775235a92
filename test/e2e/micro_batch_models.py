"""Models whose losses or statistics mix the samples of a batch, and plain gradient accumulation."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Norms(nn.Module):
    """Batch norms, one with the mean of all batches as running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Conv2d(3, 3, 3, padding=1),
            nn.BatchNorm2d(3, momentum=None),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(27, 4),
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.body(x), y)


class Router(nn.Module):
    """Experts with the auxiliary loss of Switch Transformers: mean probability times share of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.head = nn.Linear(6, 3), nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 8) for _ in range(3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        probs = self.router(x).softmax(-1)
        chosen = F.one_hot(probs.argmax(-1), 3).to(x.dtype)
        mixed = torch.stack([expert(x) for expert in self.experts], 1) * (probs * chosen).unsqueeze(-1)
        auxiliary = 3 * (probs.mean(0) * chosen.mean(0)).sum()
        return F.cross_entropy(self.head(mixed.sum(1).relu()), y) + 0.1 * auxiliary


class Contrastive(nn.Module):
    """InfoNCE between two views of each sample: the others of the batch are the negatives."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        left, right = (F.normalize(self.encoder(view), dim=-1) for view in (x, other))
        return F.cross_entropy(left @ right.t() * self.scale.exp(), torch.arange(len(x)))


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8), nn.Linear(8, 4)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.body(x), y)


class Warm(nn.Module):
    """A counter that the loss reads: it does not depend on the batch."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.count += 1
        return F.cross_entropy(self.body(x), y) * (1 - torch.exp(-self.count))


class Queue(nn.Module):
    """The keys of the last batch are the next one's negatives, as in MoCo."""

    queue: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 5)
        self.register_buffer("queue", torch.ones(2, 5))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        keys = self.encoder(x)
        loss = (keys @ self.queue.clone().t()).exp().sum()
        self.queue.copy_(keys.detach())
        return loss


def samples(model: nn.Module, rows: int = 8) -> dict[str, Tensor]:
    """A batch in f64 for one of the models here."""
    generator = torch.Generator().manual_seed(5)
    shape = (rows, 2, 3, 3) if isinstance(model, Norms) else (rows, 6)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if isinstance(model, Contrastive):
        return {"x": x, "other": x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)}
    return {"x": x, "y": torch.randint(0, 4, (rows,), generator=generator)}


def accumulated_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Mapping[str, Tensor], count: int, clip: float
) -> float:
    """One step of plain gradient accumulation over ``count`` micro-batches; its loss."""
    optimizer.zero_grad()
    losses: list[float] = []
    for number in range(count):
        part = {name: t.chunk(count)[number] for name, t in batch.items()}
        loss = model(**part)
        (loss / count).backward()
        losses.append(loss.item())
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return sum(losses) / count
