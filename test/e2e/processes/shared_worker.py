"""Several steps over shared modules on a mesh: ``shared_worker.py``. Parameters and state exist once.

In f64, 20 rounds each, held against eager training on one device to 1e-6 and much less.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from objects_worker import batch, same, same_optimizers, train_eagerly
from rank_main import run
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import shardc

ROUNDS = 20
Objective = tuple[nn.Module, torch.optim.Optimizer]


class Scores(nn.Module):
    """A generator and a critic, in the two roles of a GAN's objectives."""

    def __init__(self, generator: nn.Module, critic: nn.Module, is_generators: bool) -> None:
        super().__init__()
        self.generator, self.critic, self.is_generators = generator, critic, is_generators

    def forward(self, real: Tensor, noise: Tensor) -> Tensor:
        made = self.generator(noise)
        if self.is_generators:
            return nn.functional.softplus(-self.critic(made)).mean()
        scores = (
            nn.functional.softplus(-self.critic(real)),
            nn.functional.softplus(self.critic(made.detach())),
        )
        return scores[0].mean() + scores[1].mean()


def gan() -> list[Objective]:
    torch.manual_seed(1)
    generator = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    return [
        (Scores(generator, critic, False), torch.optim.Adam(critic.parameters(), lr=1e-2)),
        (Scores(generator, critic, True), torch.optim.Adam(generator.parameters(), lr=1e-2)),
    ]


def two_steps_in_turn(plan: str) -> None:
    ours, theirs, ranks = gan(), gan(), dist.get_world_size()
    example = {"real": batch(0)[0], "noise": batch(1)[0]}
    given = {"mesh": {"tensor" if plan == "tensor" else "data": ranks}, "plan": plan, "fuse": False}
    steps = [shardc.compile_step(model, optimizer, example, **given) for model, optimizer in ours]
    for number in range(ROUNDS):
        drawn = {"real": batch(2 * number)[0], "noise": batch(2 * number + 1)[0]}
        for step, (model, optimizer) in zip(steps, theirs, strict=True):
            model.zero_grad()
            loss = model(**drawn)
            loss.backward()
            optimizer.step()
            assert abs(step(drawn).item() - loss.item()) < 1e-9, (plan, number)
    for (mine, its), (other, theirs_too) in zip(ours, theirs, strict=True):
        same(mine.state_dict(), other.state_dict())
        same_optimizers(its, theirs_too)
    first, second = (dict(step.named_parameters()) for step in steps)
    shared = first.keys() & second.keys()
    assert len(shared) == 10 and all(first[n] is second[n] for n in shared)
    assert ours[0][0].generator is ours[1][0].generator
    assert all(isinstance(p, DTensor) for p in ours[1][0].parameters())


class Distilled(nn.Module):
    """A student, and a teacher that follows it by a moving average."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.student, self.teacher = nn.Linear(4, 3), nn.Linear(4, 3)
        self.teacher.load_state_dict(self.student.state_dict())
        self.teacher.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return (self.student(x + 0.1) - self.teacher(x)).square()

    @torch.no_grad()
    def follow(self) -> None:
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            slow.lerp_(fast, 0.1)


def a_teacher_that_follows(plan: str) -> None:
    ours, theirs, ranks = Distilled(), Distilled(), dist.get_world_size()
    mine, other = (torch.optim.SGD(m.student.parameters(), lr=0.1, momentum=0.9) for m in (ours, theirs))
    given = {"mesh": {"data": ranks}, "plan": plan, "loss": lambda o, _: o.square().mean(), "fuse": False}
    step = shardc.compile_step(ours, mine, batch(0), **given)
    for number in range(ROUNDS):
        wanted = train_eagerly(theirs, other, batch(number))
        assert abs(step(batch(number)).item() - wanted) < 1e-9, (plan, number)
        ours.follow()
        theirs.follow()
    same(ours.state_dict(), theirs.state_dict())


def main() -> None:
    for plan in ("data", "zero1", "zero3", "tensor"):
        two_steps_in_turn(plan)
    for plan in ("data", "zero3"):
        a_teacher_that_follows(plan)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(main, "steps share what they train")
