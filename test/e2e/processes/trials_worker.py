"""``plan="auto"`` on the processes that run: plans are tried, one is chosen, and it trains as eager does."""

from __future__ import annotations

import torch
import torch.distributed as dist
from rank_main import run
from torch import nn

import shardc
from shardc.planning.auto.measured import close

close.CLOSE = 1e3  # in so small a step, plans are far from each other
BATCH = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.0), nn.Linear(32, 4))


def loss_of(output: torch.Tensor, _: object) -> torch.Tensor:
    return output.square().mean()


def eager(count: int) -> list[float]:
    model, losses = new_model(), list[float]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(count):
        optimizer.zero_grad()
        loss = loss_of(model(BATCH), None)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compiled() -> shardc.CompiledStep:
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return shardc.compile_step(model, optimizer, (BATCH,), loss=loss_of, plan="auto", search_trials=3)


def part() -> None:
    torch.set_num_threads(1)
    step = compiled()
    after = torch.random.get_rng_state()
    new_model()
    assert torch.equal(after, torch.random.get_rng_state()), "trials draw no numbers of the user's"
    start = next(n for n, line in enumerate(step.around) if "plan that was tried" in line)
    tried = step.around[start + 1 :]
    assert 2 <= len(tried) <= 3, step.around
    every: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(every, tried)
    assert all(lines == tried for lines in every), every
    axes = [(axis.name, axis.size) for axis in step.compiled.mesh.axes if axis.kind != "time"]
    assert all(f"{name} {size}" in tried[0] for name, size in axes), (tried, axes)
    for loss, wanted in zip((step((BATCH,)).item() for _ in range(3)), eager(3), strict=True):
        assert abs(loss / wanted - 1) < 1e-5, (loss, wanted)
    assert compiled().around == step.around, "a second compile takes the first one's measurements"


run(part, "the chosen plan trains as eager does")
