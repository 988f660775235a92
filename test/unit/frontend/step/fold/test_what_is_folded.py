"""Layers that a trace copies, and layers that prevent it; the program equals that of a full trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from shardc.frontend.step.capture import capture_step

Both = Callable[..., Any]
LAYERS = 5
COPIED = LAYERS - 2


class Layer(nn.Module):
    """A residual layer; those below change one thing each."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(8, 16), nn.Linear(16, 8), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Any:
        return x + self.drop(self.down(self.up(x).relu()))


class Net(nn.Module):
    """Layers of a kind, one after the other."""

    def __init__(self, kind: Callable[[int], nn.Module] = Layer) -> None:
        super().__init__()
        self.start = nn.Linear(8, 8)
        self.layers = nn.ModuleList(kind(number) for number in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        for layer in self.layers:
            x = self.step(layer, x)
        return x.square().mean()

    def step(self, layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x)


def rows() -> tuple[Tensor]:
    return (torch.zeros(4, 8),)


def loss(output: Tensor, _: Any) -> Tensor:
    return output


def copies(both: Both, make: Callable[[], nn.Module], **options: Any) -> int:
    """How many calls were copied; the programs are equal."""
    found = both(lambda: make().train(), rows(), loss=loss, **options)
    assert found.folded == found.plain
    return found.copies


# Copied


class HoldsItsPlace(Layer):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.layer_idx = number


class ReturnsItsInput(Layer):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), x


class ReturnsMore(Layer):
    def forward(self, x: Tensor) -> Any:
        y = super().forward(x)
        return {"y": y, "more": (y.sum(), None, 3, y.detach() * 2)}


class Recomputes(Layer):
    def forward(self, x: Tensor) -> Any:
        return checkpoint(super().forward, x, use_reentrant=False)


class Casts(Layer):
    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


class HasNumbers(Layer):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * torch.tensor(0.5)


class SharesItsWeight(Layer):
    shared = nn.Parameter(torch.zeros(16, 8))

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.up.weight = self.shared


class First(Net):
    def step(self, layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x)[0]


class More(Net):
    """Its last layer alone is read for more than ``y``, which is a gradient more there."""

    def forward(self, x: Tensor) -> Tensor:
        made: Any = None
        for layer in self.layers:
            made = layer(x)
            x = made["y"]
        return x.square().mean() + made["more"][0] + made["more"][3].mean()


class Twice(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.start(x)) + super().forward(x)


class Frozen(Net):
    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.requires_grad_(False)


class FrozenFromTheStart(Frozen):
    def __init__(self) -> None:
        super().__init__()
        self.start.requires_grad_(False)
        self.end = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.end(x).square().mean()


class InBranches(Net):
    """Each layer reads the first input twice more."""

    def forward(self, x: Tensor) -> Tensor:
        start = x = self.start(x)
        for layer in self.layers:
            x = layer(x * start) + start
        return x.square().mean()


COPIES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "draws": (Net, COPIED),
    "holds its place": (partial(Net, HoldsItsPlace), COPIED),
    "returns its input": (partial(First, ReturnsItsInput), COPIED),
    "returns more": (partial(More, ReturnsMore), COPIED - 1),  # the first is given no gradient
    "is recomputed": (partial(Net, Recomputes), COPIED),
    "casts": (partial(Net, Casts), COPIED),
    "has numbers": (partial(Net, HasNumbers), COPIED),
    "shares a weight": (partial(Net, SharesItsWeight), COPIED),
    "called twice": (Twice, 2 * LAYERS - 2 * 2 + 2),
    "frozen": (Frozen, COPIED),
    "frozen from the start": (FrozenFromTheStart, COPIED),
    "in branches": (InBranches, COPIED),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", COPIES)
def test_is_copied(what: str, both: Both) -> None:
    make, count = COPIES[what]
    assert copies(both, make) == count


@pytest.mark.slow
def test_recurrent_layers(both: Both) -> None:
    assert copies(both, partial(Net, IsRecurrent)) in (0, COPIED)


@pytest.mark.slow
def test_autocast_around_the_model(both: Both) -> None:
    assert copies(both, Net, autocast=torch.bfloat16, clip_grad_norm=1.0) == COPIED


# Not copied


class WritesABuffer(Layer):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Any:
        return self.norm(super().forward(x))


class ReplacesABuffer(Layer):
    """The new one is the buffer's value after the step."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Any:
        self.mean = self.mean * 0.5 + x.detach().mean(0)
        return super().forward(x) + self.mean


class IsRecurrent(Layer):
    """It reads its parameters from a list of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.cell = nn.LSTM(8, 8)

    def forward(self, x: Tensor) -> Any:
        return self.cell(super().forward(x))[0]


class WritesItsInput(Layer):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x.mul_(2.0))


class ReturnsAView(Layer):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), x.view(-1)


class ReadsItsPlace(HoldsItsPlace):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * (2.0 if self.layer_idx > 3 else 1.0)


class IsAnother(Layer):
    """The same but for what a function does that it holds."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.act = (torch.sin, torch.cos, torch.tan)[number // 2]

    def forward(self, x: Tensor) -> Any:
        return self.act(super().forward(x))


class SetsAnAttribute(Layer):
    seen = 0

    def forward(self, x: Tensor) -> Any:
        self.seen = len(x)
        return super().forward(x)


class ReadsWhatIsAround(Layer):
    held: list[Tensor] = []

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.held[0]


class Around(Net):
    def forward(self, x: Tensor) -> Tensor:
        ReadsWhatIsAround.held[:] = [self.start(x)]
        return super().forward(x)


class FillsAList(Layer):
    def forward(self, x: Tensor, found: list[Tensor]) -> Any:  # type: ignore[override]
        found.append(super().forward(x))
        return found[-1] * 2


class Lists(Net):
    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        for layer in self.layers:
            x = layer(x, found)
        return x.mean() + sum(y.mean() for y in found)


CALLS = {"made": 0}


class Counts(Layer):
    def forward(self, x: Tensor) -> Any:
        CALLS["made"] += 1
        return super().forward(x)


class CountsInItsClass(Layer):
    calls = 0

    def forward(self, x: Tensor) -> Any:
        CountsInItsClass.calls += 1
        return super().forward(x)


class Counted(Net):
    def forward(self, x: Tensor) -> Tensor:
        before = CALLS["made"] + CountsInItsClass.calls
        made = super().forward(x)
        return made * (CALLS["made"] + CountsInItsClass.calls - before)


class HasConstants(Layer):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * torch.tensor([0.5] * 8)


class AsksForAValue(Layer):
    def forward(self, x: Tensor, mask: Tensor) -> Any:  # type: ignore[override]
        return super().forward(x) if mask.all() else x * 2


class Masked(Net):
    def step(self, layer: nn.Module, x: Tensor) -> Tensor:
        number = list(self.layers).index(layer)
        return layer(x, torch.arange(4) >= (0 if number < 4 else 2))


class HasHooks(Net):
    def __init__(self) -> None:
        super().__init__()
        self.layers[3].register_forward_hook(lambda module, args, output: output * 2)


class HooksAWeight(Net):
    def __init__(self) -> None:
        super().__init__()
        self.layers[3].up.weight.register_hook(lambda grad: grad * 2)


class Changes(Net):
    """Sets what its layers read before it calls them."""

    def step(self, layer: nn.Module, x: Tensor) -> Tensor:
        layer.drop.p = 0.1 * (1 + list(self.layers).index(layer))
        return layer(x)


class CheckpointsGroups(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(lambda y: self.layers[1](self.layers[0](y)), self.start(x), use_reentrant=False)
        return checkpoint(lambda y: self.layers[3](self.layers[2](y)), x, use_reentrant=False).mean()


class SavesElsewhere(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return super().forward(x)


NOT_COPIED: dict[str, Callable[[], nn.Module]] = {
    "writes a buffer": partial(Net, WritesABuffer),
    "replaces a buffer": partial(Net, ReplacesABuffer),
    "writes its input": partial(Net, WritesItsInput),
    "returns a view": partial(First, ReturnsAView),
    "reads its place": partial(Net, ReadsItsPlace),
    "is another": partial(Net, IsAnother),
    "sets an attribute": partial(Net, SetsAnAttribute),
    "reads what is around": partial(Around, ReadsWhatIsAround),
    "fills a list": partial(Lists, FillsAList),
    "counts": partial(Counted, Counts),
    "counts in its class": partial(Counted, CountsInItsClass),
    "has constants": partial(Net, HasConstants),
    "asks for a value": partial(Masked, AsksForAValue),
    "is changed": Changes,
    "is in a checkpoint with others": CheckpointsGroups,
    "saves elsewhere": SavesElsewhere,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", NOT_COPIED)
def test_is_not_copied(what: str, both: Both) -> None:
    assert copies(both, NOT_COPIED[what]) == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [HasHooks, HooksAWeight])
def test_a_layer_with_hooks_is_traced(make: Callable[[], nn.Module], both: Both) -> None:
    assert copies(both, make) == COPIED - 1


# Copied, and found to be wrong


class Leaks(Layer):
    """Hands something to who calls its model, past what it returns."""

    def forward(self, x: Tensor) -> Any:
        y = super().forward(x)
        leaked().append(y.sum())
        return y * 2


@cache
def leaked() -> list[Tensor]:
    return []


class Collects(Net):
    def forward(self, x: Tensor) -> Tensor:
        leaked().clear()
        made = super().forward(x)
        return made + sum(leaked())


class DifferentiatesItself(Net):
    """Its loss is of a gradient, as forces are of an energy."""

    def forward(self, x: Tensor) -> Tensor:
        energy = x = self.start(x)
        for layer in self.layers:
            energy = layer(energy)
        (force,) = torch.autograd.grad(energy.square().sum(), x, create_graph=True)
        return force.square().mean()


class WritesWhatItGot(Net):
    def step(self, layer: nn.Module, x: Tensor) -> Tensor:
        made = layer(x)
        return made.mul_(2.0) if layer is self.layers[4] else made


class Draws(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * torch.rand_like(grad)


class DrawsInItsBackward(Layer):
    def forward(self, x: Tensor) -> Any:
        return Draws.apply(super().forward(x))


class Reenters(Layer):
    def forward(self, x: Tensor) -> Any:
        return checkpoint(super().forward, x, use_reentrant=True)


WRONG: dict[str, Callable[[], nn.Module]] = {
    "leaks": partial(Collects, Leaks),
    "is written": WritesWhatItGot,
    "draws in its backward": partial(Net, DrawsInItsBackward),
    "is differentiated": DifferentiatesItself,
    "reenters": partial(Net, Reenters),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", WRONG)
def test_is_traced_again_layer_by_layer(
    what: str, both: Both, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="shardc.timing")
    assert copies(both, WRONG[what]) == COPIED
    assert "once more, each layer by itself" in caplog.text


@pytest.mark.slow
def test_sizes_that_depend_on_values_are_traced_whole(both: Both) -> None:
    class Selects(Layer):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x) + F.relu(x)[x.sum(1) > 0].sum()

    assert copies(both, partial(Net, Selects)) == 0


def test_a_list_that_layers_fill_is_the_callers() -> None:
    """Each layer's part of the loss is in the program."""
    model = Lists(FillsAList)
    capture = capture_step(model, torch.optim.SGD(model.parameters()), rows(), loss=loss)
    text = str(capture.module)
    assert text.count("aten.sum.dim_IntList") >= LAYERS
