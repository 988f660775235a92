"""On a mesh the user's own model and optimizer are those of the training: ``objects_worker.py FOLDER``.

In f64, held against eager training on one device. What cannot be shown refuses to be read, by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from rank_main import run
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import shardc
from shardc.diagnostics import api
from shardc.runtime.errors import ShardingMismatch
from shardc.step.compile_step import CompiledStep

torch.set_default_dtype(torch.float64)
BOUND = 1e-9
Optimizer = torch.optim.Optimizer


def batch(number: int, rows: int = 8) -> tuple[Tensor]:
    return (torch.randn(rows, 4, generator=torch.Generator().manual_seed(number)),)


def loss_of(output: Tensor, _: object) -> Tensor:
    return output.square().mean()


def new_model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)
    return nn.Sequential(*layers)


def compiled(model: nn.Module, optimizer: Optimizer, plan: object = "zero3", rows: int = 8) -> CompiledStep:
    mesh = {"tensor" if plan == "tensor" else "data": dist.get_world_size()}
    given = {"mesh": mesh, "plan": plan, "loss": loss_of, "fuse": False}
    return shardc.compile_step(model, optimizer, batch(0, rows), **given)


def train_eagerly(model: nn.Module, optimizer: Optimizer, given: tuple[Tensor]) -> float:
    optimizer.zero_grad()
    loss = loss_of(model(*given), None)
    loss.backward()
    optimizer.step()
    return loss.item()


def whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def same(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        gap = float((whole(found[name]) - value).detach().abs().max())
        assert gap < BOUND, f"{name} is off by {gap}"


def same_optimizers(mine: Optimizer, other: Optimizer) -> None:
    found, wanted = mine.state_dict()["state"], other.state_dict()["state"]
    assert found.keys() == wanted.keys()
    for number, slots in wanted.items():
        same(found[number], {key: value.double() for key, value in slots.items()})


def refused(kind: type[Exception], call: Callable[[], object], *said: str) -> None:
    try:
        call()
    except kind as error:
        assert all(text in str(error) for text in said), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def pair(
    kind: type[Optimizer], **options: float
) -> tuple[nn.Sequential, Optimizer, nn.Sequential, Optimizer]:
    ours, theirs = new_model(), new_model()
    return ours, kind(ours.parameters(), **options), theirs, kind(theirs.parameters(), **options)


def objects_follow(folder: Path) -> None:
    ours, mine, theirs, other = pair(torch.optim.AdamW, lr=0.1)
    old = list(ours.parameters())
    start = {name: value.clone() for name, value in ours.state_dict().items()}
    step, held = compiled(ours, mine), list(ours.parameters())
    for number in range(3):
        wanted = train_eagerly(theirs, other, batch(number))
        assert abs(step(batch(number)).item() - wanted) < BOUND
        same(ours.state_dict(), theirs.state_dict())
        same_optimizers(mine, other)
        if number == 0:
            held = list(ours.parameters())
        assert all(a is b for a, b in zip(ours.parameters(), held, strict=True))
        same(dict(zip("abcde", held, strict=False)), dict(zip("abcde", theirs.parameters(), strict=False)))
    assert all(isinstance(p, DTensor) and isinstance(p, nn.Parameter) and p.requires_grad for p in held)
    assert mine.param_groups[0]["params"] == held or all(
        a is b for a, b in zip(mine.param_groups[0]["params"], held, strict=True)
    )
    refused(api.ValuesElsewhere, lambda: old[0].sum().item(), "'0.weight'", "put a DTensor in its place")
    refused(api.ValuesElsewhere, old[0].detach)
    refused(api.ModelIsSharded, lambda: ours(*batch(0)), "Sequential was called", "objects_worker.py")
    refused(api.ModelIsSharded, lambda: ours[0](*batch(0)), "Linear was called", "step.state_dict()")
    refused(api.SavedTooLate, lambda: step.save(folder / "late"), "save_checkpoint")
    mine.zero_grad()
    mine.step()  # there are no gradients
    same(ours.state_dict(), theirs.state_dict())
    shardc.export_weights(step, ours, folder / "exported")
    dist.barrier()  # the first rank writes
    read = shardc.read_weights(folder / "exported")
    for name, value in theirs.state_dict().items():
        found = read(name, tuple(value.shape), value.dtype, tuple(slice(0, n) for n in value.shape))
        assert found is not None and (found - value).abs().max() < BOUND, name
    step.save_checkpoint(folder / "checkpoint")
    step.load_state_dict(start)
    same(ours.state_dict(), start)
    step.load_checkpoint(folder / "checkpoint")
    same(ours.state_dict(), theirs.state_dict())


def what_is_written_is_read() -> None:
    ours, mine, theirs, other = pair(torch.optim.SGD, lr=0.1, momentum=0.9)
    step = compiled(ours, mine)

    def train(number: int) -> None:
        wanted = train_eagerly(theirs, other, batch(number))
        assert abs(step(batch(number)).item() - wanted) < BOUND
        same(ours.state_dict(), theirs.state_dict())
        same_optimizers(mine, other)

    train(0)
    for model in (ours, theirs):
        with torch.no_grad():
            model[0].weight.mul_(0.5)
            model[3].bias.data.add_(1.0)
            model[1].running_mean.fill_(0.25)
    train(1)
    for model in (ours, theirs):
        model.load_state_dict(new_model().state_dict())  # whole tensors
        model[3].load_state_dict({"weight": torch.ones(3, 8), "bias": torch.arange(3.0)})
    train(2)
    kept, sharded = other.state_dict(), ours.state_dict()
    kept = {**kept, "state": {n: {k: v.clone() for k, v in s.items()} for n, s in kept["state"].items()}}
    train(3)
    for optimizer in (mine, other):
        optimizer.load_state_dict(kept)
    train(4)
    mine.load_state_dict(mine.state_dict())
    ours.load_state_dict(sharded)  # DTensors, of before the third step
    theirs.load_state_dict({name: whole(value) for name, value in sharded.items()})
    train(5)
    refused(api.StateReplaced, lambda: ours.load_state_dict(sharded, assign=True), "assign=True")
    right, ours[0].weight = ours[0].weight, nn.Parameter(torch.zeros(8, 4))
    refused(api.StateReplaced, lambda: step(batch(6)), "Linear.weight was replaced", "objects_worker.py")
    ours[0].weight = right
    train(6)
    mine.state.clear()
    refused(api.StateReplaced, lambda: step(batch(7)), "momentum_buffer")


def tied_weights() -> None:
    def new() -> nn.Sequential:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        model[2].weight = model[0].weight
        return model

    ours, theirs = new(), new()
    mine, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs))
    step = compiled(ours, mine)
    for number in range(2):
        train_eagerly(theirs, other, batch(number))
        step(batch(number))
    assert ours[2].weight is ours[0].weight and isinstance(ours[0].weight, DTensor)
    same(ours.state_dict(), theirs.state_dict())


def a_model_on_the_meta_device() -> None:
    start, theirs = new_model().state_dict(), new_model()
    with torch.device("meta"):
        ours = new_model()
    mine, other = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (ours, theirs))
    given = {"mesh": {"data": dist.get_world_size()}, "plan": "zero3", "loss": loss_of, "fuse": False}
    step = shardc.compile_step(ours, mine, batch(0), state=start, **given)
    train_eagerly(theirs, other, batch(0))
    step(batch(0))
    same(ours.state_dict(), theirs.state_dict())


def a_second_step_over_a_trained_model() -> None:
    """Compiled before and after the first has run, with another batch size; one optimizer."""
    ours, mine, theirs, other = pair(torch.optim.AdamW, lr=0.1)
    steps = [compiled(ours, mine), compiled(ours, mine, rows=4)]
    train_eagerly(theirs, other, batch(0))
    steps[0](batch(0))
    steps.append(compiled(ours, mine, rows=12))
    for number, rows in enumerate((4, 8, 12, 8, 4, 12), start=1):
        wanted = train_eagerly(theirs, other, batch(number, rows))
        step = steps[{8: 0, 4: 1, 12: 2}[rows]]
        assert abs(step(batch(number, rows)).item() - wanted) < BOUND
        same(ours.state_dict(), theirs.state_dict())
        same_optimizers(mine, other)
        same(dict(steps[0].named_parameters()), dict(theirs.named_parameters()))
    refused(
        ShardingMismatch,
        lambda: compiled(ours, mine, plan="data")(batch(0)),
        "is sharded on",
        "here it is replicated",
    )
    steps.clear()
    del step  # pyright: ignore[reportPossiblyUnboundVariable]
    step = compiled(ours, mine, plan="data")  # nobody else trains it any more
    wanted = train_eagerly(theirs, other, batch(9))
    assert abs(step(batch(9)).item() - wanted) < BOUND
    same(ours.state_dict(), theirs.state_dict())
    same_optimizers(mine, other)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Linear(4, 16), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(nn.functional.silu(gate) * up)


def what_cannot_be_shown() -> None:
    torch.manual_seed(0)
    model = Gated()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step = compiled(model, optimizer, plan="tensor")
    step(batch(0))
    assert isinstance(model.down.weight, DTensor)
    refused(api.ValuesElsewhere, model.state_dict, "'gate_up.weight'", "stored in another order")
    refused(api.ValuesElsewhere, lambda: model.gate_up.weight + 1, "step.named_parameters()")
    slots = optimizer.state_dict()["state"][0]
    refused(api.ValuesElsewhere, lambda: slots["exp_avg"].sum(), "'gate_up.weight/exp_avg'")
    assert list(model.gate_up.weight.shape) == [16, 4]
    again = compiled(model, optimizer, plan="tensor")
    shown = dict(step.named_parameters())["gate_up.weight"].full_tensor().clone()
    again(batch(1))
    step(batch(2))
    found = [dict(s.named_parameters())["gate_up.weight"].full_tensor() for s in (step, again)]
    assert torch.equal(*found) and not torch.equal(shown, found[0])


def each_mode_has_a_program(modes: str) -> None:
    """The second one over the same DTensors; ``modes``: T for training, E for eval."""
    ours, mine, theirs, other = pair(torch.optim.AdamW, lr=0.1)
    step = compiled(ours, mine)
    for number, mode in enumerate(modes):
        for model in (ours, theirs):
            model.train(mode == "T")
        wanted = train_eagerly(theirs, other, batch(number))
        assert abs(step(batch(number)).item() - wanted) < BOUND
        same(ours.state_dict(), theirs.state_dict())
        same_optimizers(mine, other)
    assert step.steps_done == len(modes)


def ranks_of_a_pipeline() -> None:
    ours, theirs = (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    for model in (ours, theirs):
        for p in model.parameters():
            dist.broadcast(p.data, 0)
    mine, other = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (ours, theirs))
    given = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 2, "loss": loss_of, "fuse": False}
    step = shardc.compile_step(ours, mine, batch(0), **given)
    for number in range(2):
        wanted = train_eagerly(theirs, other, batch(number))
        assert abs(step(batch(number)).item() - wanted) < BOUND
    held = dict(step.named_parameters())
    assert 0 < len(held) < 4
    for name, parameter in ours.named_parameters():
        if name in held:
            assert (whole(parameter) - theirs.get_parameter(name)).abs().max() < BOUND
        else:
            refused(api.ValuesElsewhere, parameter.norm, repr(name), "other ranks of the pipeline")


def main(folder: Path) -> None:
    objects_follow(folder)
    what_is_written_is_read()
    tied_weights()
    a_model_on_the_meta_device()
    a_second_step_over_a_trained_model()
    what_cannot_be_shown()
    for modes in ("TEET", "ET"):
        each_mode_has_a_program(modes)
    if dist.get_world_size() == 2:
        ranks_of_a_pipeline()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(Path(sys.argv[1])), "the user's objects follow")
