"""On one device the user's own model and optimizer are those of the training: no stale copy answers."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import swa_utils

import shardc
from shardc.diagnostics.api import StateReplaced
from shardc.runtime import TrainStep
from shardc.step.compile_step import CompiledStep


def new_model() -> nn.Sequential:
    """In f64; no bias ahead of batch norm, where its gradient is zero but for rounding."""
    torch.manual_seed(0)
    layers = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)
    return nn.Sequential(*layers).double()


def batch(number: int) -> tuple[Tensor]:
    generator = torch.Generator().manual_seed(number)
    return (torch.randn(6, 4, generator=generator, dtype=torch.float64),)


def loss_of(output: Tensor, _: object) -> Tensor:
    return output.square().mean()


def compiled(model: nn.Module, optimizer: torch.optim.Optimizer, **options: object) -> CompiledStep:
    given = {"mesh": {"data": 1}, "loss": loss_of, "fuse": False, **options}
    return shardc.compile_step(model, optimizer, batch(0), **given)


def train_eagerly(model: nn.Module, optimizer: torch.optim.Optimizer, numbers: range) -> list[float]:
    losses = []
    for number in numbers:
        optimizer.zero_grad()
        loss = loss_of(model(*batch(number)), None)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_same(found: nn.Module, wanted: nn.Module) -> None:
    for name, value in wanted.state_dict().items():
        assert torch.allclose(found.state_dict()[name], value, rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("fuse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_model_and_optimizer_follow(fuse: bool) -> None:
    ours, theirs = new_model(), new_model()
    mine, other = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (ours, theirs))
    step = compiled(ours, mine, fuse=fuse)
    first, held = ours[0].weight, list(ours.parameters())
    losses = [step(batch(number)).item() for number in range(3)]
    assert losses == pytest.approx(train_eagerly(theirs, other, range(3)), rel=1e-5)
    assert_same(ours, theirs)
    assert ours[0].weight is first and all(a is b for a, b in zip(ours.parameters(), held, strict=True))
    ours.eval()
    theirs.eval()
    assert torch.allclose(ours(*batch(9)), theirs(*batch(9)), rtol=1e-5)
    found, wanted = mine.state_dict(), other.state_dict()
    assert found["state"].keys() == wanted["state"].keys()
    for number, slots in wanted["state"].items():
        for key, value in slots.items():
            assert torch.allclose(found["state"][number][key], value, rtol=1e-4, atol=1e-8), (number, key)
    # DTensors show the same, and need no gradient
    for name, value in step.named_parameters():
        assert torch.equal(value.full_tensor(), ours.get_parameter(name)) and not value.requires_grad
    ours.train()
    step(batch(3))
    assert torch.equal(dict(step.named_parameters())["0.weight"].full_tensor(), first)


def test_what_is_written_into_the_model_is_read_by_the_next_step() -> None:
    ours, theirs = new_model(), new_model()
    mine, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (ours, theirs))
    step = compiled(ours, mine)
    step(batch(0))
    train_eagerly(theirs, other, range(1))
    for model in (ours, theirs):
        with torch.no_grad():
            model[0].weight.mul_(0.5)
            model[3].bias.data = torch.ones(2, dtype=torch.float64)
            model[1].running_mean.fill_(0.25)
    assert step(batch(1)).item() == pytest.approx(train_eagerly(theirs, other, range(1, 2))[0], rel=1e-5)
    assert_same(ours, theirs)
    start = copy.deepcopy(theirs.state_dict())
    ours.load_state_dict(start)
    assert step(batch(2)).item() == pytest.approx(train_eagerly(theirs, other, range(2, 3))[0], rel=1e-5)
    assert_same(ours, theirs)
    # momentum that is reset in the user's optimizer
    for optimizer in (mine, other):
        for slots in optimizer.state.values():
            slots["momentum_buffer"].zero_()
    step(batch(3))
    train_eagerly(theirs, other, range(3, 4))
    assert_same(ours, theirs)


def test_a_moving_average_follows() -> None:
    ours, theirs = new_model(), new_model()
    mine, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs))
    averages = [
        swa_utils.AveragedModel(m, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)) for m in (ours, theirs)
    ]
    step = compiled(ours, mine)
    for number in range(4):
        step(batch(number))
        train_eagerly(theirs, other, range(number, number + 1))
        averages[0].update_parameters(ours)
        averages[1].update_parameters(theirs)
    assert_same(*averages)


def test_a_model_on_the_meta_device_gets_its_values() -> None:
    theirs = new_model()
    start = copy.deepcopy(theirs.state_dict())
    with torch.device("meta"):
        ours = new_model()
    mine, other = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (ours, theirs))
    step = compiled(ours, mine, state=start)
    step(batch(0))
    train_eagerly(theirs, other, range(1))
    assert not any(p.is_meta for p in (*ours.parameters(), *ours.buffers()))
    assert_same(ours, theirs)
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in ours.parameters())


def test_tied_weights_stay_tied() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).double()
    ours[2].weight = ours[0].weight
    theirs = copy.deepcopy(ours)
    mine, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs))
    step = compiled(ours, mine)
    step(batch(0))
    train_eagerly(theirs, other, range(1))
    assert ours[2].weight is ours[0].weight
    assert_same(ours, theirs)


def test_an_artefact_that_is_saved_after_steps_goes_on_from_them(tmp_path: Path) -> None:
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step = compiled(model, optimizer)
    step(batch(0))
    step.save(tmp_path / "out")
    loaded = TrainStep.load(tmp_path / "out")
    for name, value in step.state_dict().items():
        assert torch.equal(loaded.state_dict()[name].full_tensor(), value.full_tensor()), name


class Scores(nn.Module):
    """A generator and a discriminator, in the two roles of a GAN's objectives."""

    def __init__(self, generator: nn.Module, critic: nn.Module, is_generators: bool) -> None:
        super().__init__()
        self.generator, self.critic, self.is_generators = generator, critic, is_generators

    def forward(self, real: Tensor, noise: Tensor) -> Tensor:
        made = self.generator(noise)
        if self.is_generators:
            return nn.functional.softplus(-self.critic(made)).mean()
        scores = nn.functional.softplus(-self.critic(real)) + nn.functional.softplus(
            self.critic(made.detach())
        )
        return scores.mean()


def gan(kind: str) -> list[tuple[Scores, torch.optim.Optimizer]]:
    """The steps of the two objectives, over one generator and one critic."""
    torch.manual_seed(1)
    generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[kind]
    return [
        (Scores(generator, critic, False), optimizer(critic.parameters(), lr=1e-2)),
        (Scores(generator, critic, True), optimizer(generator.parameters(), lr=1e-2)),
    ]


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_two_steps_over_shared_modules_equal_eager(kind: str) -> None:
    """A GAN: 20 rounds, with each objective's own optimizer; parameters exist once."""
    ours, theirs = gan(kind), gan(kind)
    example = {"real": torch.randn(6, 4), "noise": torch.randn(6, 3)}
    steps = [
        shardc.compile_step(model, optimizer, example, mesh={"data": 1}, fuse=False)
        for model, optimizer in ours
    ]
    for number in range(20):
        torch.manual_seed(number)
        given = {"real": torch.randn(6, 4), "noise": torch.randn(6, 3)}
        for step, (model, optimizer) in zip(steps, theirs, strict=True):
            model.zero_grad()
            loss = model(**given)
            loss.backward()
            optimizer.step()
            assert step(given).item() == pytest.approx(loss.item(), rel=1e-5), number
    for (mine, _), (other, _) in zip(ours, theirs, strict=True):
        for name, value in other.state_dict().items():
            assert torch.allclose(mine.state_dict()[name], value, rtol=1e-5, atol=1e-6), name
    first, second = (step.running.state.local for step in steps)
    assert all(first[name] is second[name] for name in first if name in second and "/" not in name)


def test_a_student_and_a_teacher_that_follows_equal_eager() -> None:
    class Distilled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.student, self.teacher = nn.Linear(4, 3), nn.Linear(4, 3)
            self.teacher.load_state_dict(self.student.state_dict())
            self.teacher.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return (self.student(x + 0.1) - self.teacher(x)).square().mean()

        @torch.no_grad()
        def follow(self) -> None:
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.lerp_(fast, 0.1)

    ours, theirs = Distilled().double(), Distilled().double()
    mine, other = (torch.optim.SGD(m.student.parameters(), lr=0.1) for m in (ours, theirs))
    step = shardc.compile_step(ours, mine, batch(0), mesh={"data": 1}, fuse=False)
    for number in range(20):
        other.zero_grad()
        loss = theirs(*batch(number))
        loss.backward()
        other.step()
        assert step(batch(number)).item() == pytest.approx(loss.item(), rel=1e-5)
        ours.follow()
        theirs.follow()
    assert_same(ours, theirs)


def test_optimizer_state_that_is_loaded_reaches_the_step() -> None:
    ours, theirs = new_model(), new_model()
    mine, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (ours, theirs))
    train_eagerly(theirs, other, range(1))
    kept = copy.deepcopy(other.state_dict())
    ours.load_state_dict(theirs.state_dict())
    step = compiled(ours, mine)
    mine.load_state_dict(copy.deepcopy(kept))  # before the first step
    assert step(batch(1)).item() == pytest.approx(train_eagerly(theirs, other, range(1, 2))[0], rel=1e-5)
    for optimizer in (mine, other):  # and behind it
        optimizer.load_state_dict(copy.deepcopy(kept))
    step(batch(2))
    train_eagerly(theirs, other, range(2, 3))
    assert_same(ours, theirs)
    for (_, held), wanted in zip(mine.state.items(), other.state.values(), strict=True):
        assert torch.allclose(held["momentum_buffer"], wanted["momentum_buffer"], rtol=1e-5)


def test_steps_with_one_optimizer_share_its_state() -> None:
    """Two batch sizes of one training."""
    ours, theirs = new_model(), new_model()
    mine, other = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (ours, theirs))
    given = {"mesh": {"data": 1}, "loss": loss_of, "fuse": False}
    steps = [shardc.compile_step(ours, mine, (batch(0)[0][:rows],), **given) for rows in (6, 4)]
    for number, rows in enumerate((6, 4, 4, 6)):
        (values,) = batch(number)
        other.zero_grad()
        loss = loss_of(theirs(values[:rows]), None)
        loss.backward()
        other.step()
        step = steps[0 if rows == 6 else 1]
        assert step((values[:rows],)).item() == pytest.approx(loss.item(), rel=1e-5), number
    assert_same(ours, theirs)
    assert all(float(slots["step"]) == 4 for slots in mine.state.values())


def test_a_tensor_put_in_the_place_of_the_steps_is_refused() -> None:
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = compiled(model, optimizer)
    step(batch(0))
    with pytest.raises(StateReplaced, match=r"assign=True.*\n.*test_share_state.py"):
        model.load_state_dict(new_model().state_dict(), assign=True)
    right, model[0].weight = model[0].weight, nn.Parameter(torch.zeros(8, 4, dtype=torch.float64))
    with pytest.raises(StateReplaced, match=r"Linear.weight was replaced.*\n.*test_share_state.py"):
        step(batch(1))
    model[0].weight = right
    step(batch(1))
    optimizer.state.clear()
    with pytest.raises(StateReplaced, match="momentum_buffer"):
        step(batch(2))


def test_a_model_that_torch_compile_wrapped_is_shared_too() -> None:
    model = new_model()
    wrapped = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model[0].weight.detach().clone()
    step = compiled(wrapped, optimizer)
    step(batch(0))
    assert not torch.equal(before, model[0].weight)
