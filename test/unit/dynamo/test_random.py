"""Random ops under ``torch.compile``: the numbers of ``compile_step``,
from a seed that each call draws from PyTorch.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from shardc.backends.eager.interpreter import run
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.frontend.graph.graph_random import draw_seed
from shardc.frontend.step.capture import capture_step

Wrap = Callable[..., Any]
Tensor = torch.Tensor


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.view(5, 2, 6))


def _draws(x: Tensor) -> Tensor:
    weights = x.detach().sigmoid()
    some = torch.rand_like(x) + torch.poisson(weights) + torch.bernoulli(weights) + torch.randperm(6)
    return x * some + torch.randn_like(x) * torch.multinomial(weights, 1) + torch.empty_like(x).exponential_()


class _Draws(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return _draws(super().forward(x))


class _Checkpointed(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        drop = lambda t: functional.dropout(_draws(t), 0.3).exp()  # noqa: E731
        return functional.dropout(checkpoint(drop, super().forward(x), use_reentrant=False), 0.2)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: nn.Sequential(
        nn.Linear(6, 8), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 6)
    ),
    "attention": _Attention,
    "draws": lambda: _Draws(6, 6),
    "checkpointed": lambda: _Checkpointed(6, 6),
}
RUNS = [("dropout", False), ("dropout", True), ("attention", True), ("draws", False), ("checkpointed", True)]


def _loss(output: Tensor, _: Any = None) -> Tensor:
    return (output * torch.rand_like(output)).square().sum()


def _step(model: nn.Module, x: Tensor, seed: Tensor) -> list[Tensor]:
    """Loss and gradients of ``compile_step``'s program on one device, run by the oracle."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, maximize=True)
    capture = capture_step(model, optimizer, (x,), loss=_loss)
    values = {**capture.initial_values(), ("input", "0"): x, ("seed", "seed"): seed}
    values["hyper", "group0.lr"] = torch.tensor(1.0, dtype=torch.float64)
    results = [r for [r] in run(capture.module, [[values[s.role, s.name]] for s in capture.arguments])]
    return [
        results[0],
        *(new - old.detach() for new, old in zip(results[1:], model.parameters(), strict=False)),
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "fuse"), RUNS)
def test_a_graph_draws_what_a_step_with_its_seed_draws(compiled: Wrap, name: str, fuse: bool) -> None:
    model, x = MODELS[name]().double(), torch.randn(10, 6, dtype=torch.float64)
    torch.manual_seed(9)
    expected = _step(model, x, draw_seed())
    torch.manual_seed(9)
    loss = compiled(lambda x: _loss(model(x)), fuse=fuse)(x)
    loss.backward()
    for found, wanted in zip([loss.detach(), *(p.grad for p in model.parameters())], expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fuse", [False, True], ids=["aten", "fused"])
def test_each_call_draws_other_numbers_and_the_seed_brings_them_back(compiled: Wrap, fuse: bool) -> None:
    f = lambda x: functional.dropout(x, 0.5) + torch.randn_like(x) + torch.poisson(x)  # noqa: E731
    x, run = torch.ones(200), compiled(f, fuse=fuse)
    torch.manual_seed(3)
    first = [run(x) for _ in range(3)]
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[1], first[2])
    torch.manual_seed(3)
    for a, b in zip(first, [run(x) for _ in range(3)], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("fuse", [False, True], ids=["aten", "fused"])
def test_the_backward_has_the_mask_of_its_forward(compiled: Wrap, fuse: bool) -> None:
    run = compiled(lambda x: functional.dropout(x * 2, 0.5), fuse=fuse)
    x = torch.ones(200, requires_grad=True)
    y, other = run(x), run(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, y) and not torch.equal(grad, other)


def test_a_graph_without_draws_leaves_the_generator_alone(compiled: Wrap) -> None:
    before = torch.get_rng_state()
    compiled(lambda x: functional.dropout(x.exp(), 0.5, training=False))(torch.ones(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_has_its_rate_and_is_part_of_a_kernel(compiled: Wrap, programs: list[str]) -> None:
    kept = compiled(lambda x: functional.dropout(functional.gelu(x), 0.3) * 0.7, fuse=True)(
        torch.full((400, 500), 30.0)
    )
    assert abs((kept == 0).double().mean().item() - 0.3) < 5 * (0.3 * 0.7 / kept.numel()) ** 0.5
    torch.testing.assert_close(kept[kept != 0].unique(), torch.tensor([30.0]))
    assert "uniform = " not in programs[0] and "kernel(" in programs[0]


SHAPES = [(), (9,), (4, 1), (2, 3, 7), (8, 64)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_draw_what_aten_draws(compiled: Wrap, shape: tuple[int, ...]) -> None:
    """In each dtype; where the next op sees the numbers in another shape or order,
    or they are spread over another dim.
    """

    def f(x: Tensor) -> tuple[Tensor, ...]:
        dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        plain = [torch.rand_like(x, dtype=dtype) * 2 for dtype in dtypes]
        return (
            *plain,
            torch.rand_like(x).view(-1) * 2,
            torch.rand_like(x).mT * 2 if x.dim() > 1 else x,
            torch.rand_like(x) + spread,
        )

    x, spread = torch.zeros(shape), torch.zeros(2, *shape)
    results = []
    for fuse in (False, True):
        torch.manual_seed(5)
        results.append(compiled(f, fuse=fuse)(x))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_other_sizes_have_the_same_numbers_where_both_have_elements(
    compiled: Wrap, programs: list[str]
) -> None:
    run = compiled(lambda x: functional.dropout(x, 0.5))
    found = []
    for rows in (3, 5, 8):
        torch.manual_seed(3)
        found.append(run(torch.ones(rows, 40)))
    assert len(programs) == 2  # the second is for all sizes
    assert torch.equal(found[1][:3], found[0]) and torch.equal(found[2][:5], found[1])


def test_neither_no_grad_nor_autocast_changes_the_mask(compiled: Wrap) -> None:
    x, w = torch.ones(30, 8), torch.eye(8, requires_grad=True)
    run = compiled(lambda x: functional.dropout(x @ w, 0.5))

    def mask() -> Tensor:
        torch.manual_seed(3)
        return run(x) != 0

    expected = mask()
    with torch.no_grad():
        assert torch.equal(mask(), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mask(), expected)


def test_checkpointing_around_a_compiled_function_replays_its_draws(compiled: Wrap) -> None:
    """PyTorch saves and restores the generator's state, from which the seed is drawn."""
    block, x = compiled(lambda t: functional.dropout(t, 0.5).exp()), torch.randn(100, requires_grad=True)
    torch.manual_seed(3)
    y = block(x)
    (expected,) = torch.autograd.grad(y.sum(), x)
    torch.manual_seed(3)
    replayed = checkpoint(block, x, use_reentrant=False)
    (found,) = torch.autograd.grad(replayed.sum(), x)
    assert torch.equal(replayed, y) and torch.equal(found, expected)


def test_ops_of_a_branch_draw_from_pytorch() -> None:
    """A higher-order operator's body is a graph of its own, which the seed does not reach; it falls back as
    before.
    """

    def f(x: Tensor) -> Tensor:
        x = functional.dropout(x, 0.5)
        return torch.cond(x.sum() > -1, lambda x: x + torch.rand_like(x), lambda x: x - 1, (x,))

    run, x = torch.compile(f, backend="shardc"), torch.ones(50)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ShardcFallbackWarning)
        torch.manual_seed(3)
        first, second = run(x), run(x)
        torch.manual_seed(3)
        assert torch.equal(run(x), first) and not torch.equal(first, second)
    assert any("higher-order" in str(w.message) for w in caught)


def test_training_is_the_same_with_and_without_kernels(compiled: Wrap) -> None:
    model = nn.Sequential(
        nn.Linear(6, 33), nn.GELU(), nn.Dropout(0.3), nn.LayerNorm(33), nn.Dropout(0.1)
    ).double()
    x, found = torch.randn(7, 6, dtype=torch.float64), []
    for fuse in (False, True):
        twin = copy.deepcopy(model)
        torch.manual_seed(1)
        compiled(twin, fuse=fuse)(x).square().sum().backward()
        found.append([p.grad for p in twin.parameters()])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)
