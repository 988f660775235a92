"""Values that a trace would freeze are refused by name, with the user's line; constants are accepted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.frontend import FrozenValue, PythonRandom
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.frozen import python_values

pytestmark = pytest.mark.usefixtures("f64")


class Net(nn.Module):
    """A layer that is followed by ``change``, which gets the module; only f64 tensors."""

    def __init__(self, change: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(4, 3)
        self.calls, self.seen, self.table = 0, [], None
        self.counts, self.kept, self.rng = {"calls": 0}, torch.zeros(3), random.Random(0)
        self.change = [change]

    def forward(self, x: Tensor) -> Tensor:
        return self.change[0](self, self.inner(x))


def loss(output: Tensor, _: object) -> Tensor:
    return output.square().mean()


def batches() -> list[tuple[Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(6, 4),) for _ in range(3)]


def refused(kind: type[ShardcError], change: Callable[[Any, Tensor], Tensor], **options: bool) -> str:
    """The error's text. The model is left as it was."""
    model = Net(change)
    with pytest.raises(kind) as caught:
        capture_step(model, SGD(model.parameters(), 0.1), batches()[0], loss=loss, **options)
    assert (model.calls, model.seen, model.table, model.counts) == (0, [], None, {"calls": 0})
    return str(caught.value)


def line(function: Callable[..., object], offset: int) -> str:
    return f"at: {__file__}:{function.__code__.co_firstlineno + offset}"


def drawn_factor(model: Net, x: Tensor) -> Tensor:
    y = x.tanh()
    return y * random.random()


def drawn_branch(model: Net, x: Tensor) -> Tensor:
    y = x.tanh()
    if np.random.rand() < 2:
        y = y * 2
    return y


@pytest.mark.parametrize(
    ("change", "generator", "offset"),
    [(drawn_factor, "Python's random", 2), (drawn_branch, "numpy.random", 3)],
)
def test_draws_outside_of_pytorch_are_refused(change: Any, generator: str, offset: int) -> None:
    text = refused(PythonRandom, change)
    assert f"draws from {generator}" in text and line(change, offset) in text


def drawn_in_vain(model: Net, x: Tensor) -> Tensor:
    kept = random.uniform(0, 1)
    y = x.tanh() if model.training and kept < 0.0 else x.sin()
    return y * 2 if random.random() >= 1 or not -1 < random.uniform(2, 1) <= 2 else y


def drawn_layer(model: Net, x: Tensor) -> Tensor:
    y = x.sin()
    return y.tanh() if random.uniform(0, 1) < 0.5 else y


def drawn_to_equal(model: Net, x: Tensor) -> Tensor:
    y = x.sin()
    return y.tanh() if random.random() == 0.0 else y


def test_draws_that_decide_nothing_are_taken() -> None:
    """Layer drop with a probability of 0 draws all the same; compiling leaves the generator as it was."""
    before = random.getstate()
    model = Net(drawn_in_vain)
    traced = capture_step(model, SGD(model.parameters(), 0.1), batches()[0], loss=loss)
    assert random.getstate() == before
    targets = {str(node.target) for node in traced.graph.graph.nodes}
    assert "aten.sin.default" in targets and "aten.tanh.default" not in targets


@pytest.mark.parametrize("change", [drawn_layer, drawn_to_equal])
def test_draws_that_decide_are_refused(change: Any) -> None:
    text = refused(PythonRandom, change)
    assert "draws from Python's random" in text and line(change, 2) in text


def counted_factor(model: Net, x: Tensor) -> Tensor:
    model.calls += 1
    y = x.tanh()
    return y * model.calls


def counted_branch(model: Net, x: Tensor) -> Tensor:
    model.calls += 1
    return x * 2 if model.calls > 10 else x


def counted_in_dict(model: Net, x: Tensor) -> Tensor:
    model.counts["calls"] += 1
    return x


def listed(model: Net, x: Tensor) -> Tensor:
    model.seen.append(x)
    return x


def carried(model: Net, x: Tensor) -> Tensor:
    y = x + model.kept
    model.kept = y.detach().mean(0)
    return y


def own_generator(model: Net, x: Tensor) -> Tensor:
    return x * model.rng.random()


@pytest.mark.parametrize(
    ("change", "said", "offset"),
    [
        (counted_factor, "model.calls (0 before a forward, 1 after it)", 3),
        (counted_in_dict, "model.counts['calls'] (1 before a forward, 2 after it)", None),
        (counted_branch, "model.calls (1 before a forward, 2 after it)", None),
        (listed, "model.seen (1 of a list before a forward, 2 of a list after it)", None),
        (carried, "model.kept", 1),
        (own_generator, "model.rng (it changes)", 1),
    ],
)
def test_a_step_that_depends_on_the_step_before_is_refused(
    change: Any, said: str, offset: int | None
) -> None:
    text = refused(FrozenValue, change)
    assert said in text
    assert (line(Net.forward, 0) if offset is None else line(change, offset)) in text


def test_an_attribute_that_fails_the_second_step_is_refused() -> None:
    def broken(model: Net, x: Tensor) -> Tensor:
        model.calls += 1
        return x.view(6 // model.calls, 3)

    text = refused(FrozenValue, broken)
    assert "model.calls (0 before a forward, 1 after it)" in text and line(broken, 2) in text


def table(model: Net, x: Tensor) -> Tensor:
    """Made by the first forward, as tables of positions are."""
    if model.table is None:
        model.calls, model.table = 3, torch.arange(3.0)
    return nn.functional.dropout(x + model.table * model.calls, 0.5) * 0 + x + model.table


def last(model: Net, x: Tensor) -> Tensor:
    """Left for the outer module, as routers leave their losses."""
    model.kept = x.square().mean()
    return x + model.kept


def shapes(model: Net, x: Tensor) -> Tensor:
    model.seen[:] = x.shape
    model.calls = len(model.seen)
    return x


@pytest.mark.parametrize("change", [table, last, shapes])
def test_what_stays_the_same_is_no_error(change: Any, follows_eager: Callable[..., Any]) -> None:
    follows_eager(Net(change), lambda m: SGD(m.parameters(), 0.1), batches(), loss=loss)


def test_a_large_attribute_is_looked_at_in_part() -> None:
    module = nn.Module()
    module.vocabulary = [[[0] * 1000] * 1000] * 1000
    held = [name for _, name in python_values({"model": module}) if name.startswith("vocabulary")]
    assert held[:3] == ["vocabulary", "vocabulary[0]", "vocabulary[0][0]"] and len(held) == 1000


class CountingLoss(nn.Module):
    calls = 0

    def forward(self, output: Tensor, _: object) -> Tensor:
        self.calls += 1
        return output.square().mean() / self.calls


def test_the_loss_may_be_a_module() -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(FrozenValue) as caught:
        capture_step(model, SGD(model.parameters(), 0.1), batches()[0], loss=CountingLoss())
    assert "loss.calls (absent before a forward, 1 after it)" in str(caught.value)
    assert line(CountingLoss.forward, 2) in str(caught.value)


def test_time_is_seen_by_two_traces() -> None:
    def timed(model: Net, x: Tensor) -> Tensor:
        y = x.tanh()
        return y * time.perf_counter()

    text = refused(FrozenValue, timed, twice=True)
    assert "time, or numbers from outside of PyTorch" in text and line(timed, 2) in text


def test_two_traces_of_one_program_are_equal() -> None:
    """Draws, recomputation and constants of both are the same."""

    def mixed(model: Net, x: Tensor) -> Tensor:
        held = torch.utils.checkpoint.checkpoint(torch.nn.functional.dropout, x, use_reentrant=False)
        return nn.functional.dropout(held, 0.3) + torch.rand(3) + torch.tensor([1.0, 2.0, 3.0])

    model = Net(mixed)
    made = capture_step(model, SGD(model.parameters(), 0.1), batches()[0], loss=loss, twice=True)
    once = capture_step(model, SGD(model.parameters(), 0.1), batches()[0], loss=loss)
    assert str(made.module) == str(once.module)
