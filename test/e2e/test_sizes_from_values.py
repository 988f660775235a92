"""Sizes and numbers that depend on values: traced as symbols, computed at a fixed size, equal to eager
training.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from models import Training, sgd
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from training import Ranks, capture, check_equal, train_eagerly

ROWS, LENGTH, WIDTH, EXPERTS = 6, 5, 4, 3


class Net(nn.Module):
    """Rows x [ROWS, LENGTH, WIDTH] with a kind in 0..EXPERTS-1 for each place, given to one of the functions
    below.
    """

    def __init__(self, function: Callable[[Net, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 7), nn.GELU(), nn.Linear(7, WIDTH)) for _ in range(EXPERTS)
        )
        self.weight = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH))
        self.table = nn.Parameter(torch.randn(EXPERTS, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        return self.function(self, self.norm(x), kinds)


def _masked_experts(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for kind, expert in enumerate(net.experts):
        out[kinds == kind] = expert(x[kinds == kind])
    return out.square().sum()


def _experts_by_row(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    """The mask has one dim, the rows two more, which ``linear`` merges with it."""
    out = x.clone()
    for kind, expert in enumerate(net.experts):
        out[kinds[:, 0] == kind] += expert(x[kinds[:, 0] == kind])
    return out.square().sum()


def _indexed_experts(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    rows, out = x.flatten(0, 1), torch.zeros(ROWS * LENGTH, WIDTH)
    for kind, expert in enumerate(net.experts):
        (place,) = torch.where(kinds.flatten() == kind)
        out.index_add_(0, place, expert(rows[place]) * net.table[kind])
    return out.square().sum()


def _places_of_another(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    """Places of a mask in tensors that are longer than it."""
    rows = torch.cat([x.flatten(0, 1), net.table])
    (place,) = torch.where(kinds.flatten() == 1)
    a, b = torch.where(kinds[:3, :2] != 1)
    return (
        rows[place].square().sum()
        + x[a, b].exp().sum()
        + rows.index_add(0, place, 2 * rows[place]).square().sum()
    )


def _sorted_experts(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    order = kinds.flatten().argsort(stable=True)
    sizes = F.one_hot(kinds.flatten(), EXPERTS).sum(0).tolist()
    parts = x.flatten(0, 1)[order].split(sizes)
    rows = torch.cat([part @ weight for part, weight in zip(parts, net.weight, strict=True)])
    return (
        (torch.zeros(ROWS * LENGTH, WIDTH).index_add(0, order, rows) * x.flatten(0, 1).detach())
        .square()
        .sum()
    )


def _unused(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    return x[kinds > EXPERTS].sum() + x.square().sum()


def _not_finite_elsewhere(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    """What is not selected is infinite, and its gradient not a number."""
    shown = x[kinds == 0].exp() + 1
    hidden = torch.where((kinds == 0)[..., None], x, torch.inf)[kinds == 0]
    return (hidden @ net.weight[0]).square().sum() + shown.log().sum()


def _written_at(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    rows = x.flatten(0, 1)
    (place,) = torch.where(kinds.flatten() == 1)
    out = rows.clone()
    out[place] = rows[place] * rows[place].detach().cumsum(0)
    return out.square().sum() + (torch.arange(place.shape[0]) * rows[place][:, 0]).sum()


def _rows_of_two_masks(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    """The same count at different places."""
    return (x[kinds == 2] @ net.weight[0] * x[kinds.flip(1) == 2]).square().sum()


def _pieces(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    chosen = x[kinds == 0]
    both = torch.cat([chosen, x[kinds == 1], net.table])
    count = (kinds == 0).sum().item()
    rows = x.flatten(0, 1)
    return (
        (both @ net.weight[1]).square().sum()
        + rows[:count].sum()
        + rows[-count:].square().sum()
        + chosen[:2].sum()
    )


def _statistics(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    chosen = net.norm(x[kinds == 1])
    spread = chosen.amax(0) - chosen.amin(0) + chosen.sum(0) / chosen.shape[0]
    return (spread * chosen.softmax(0).square().sum(0)).sum() + chosen.mean()


def _numbers(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    scale, count = x.abs().max().item(), kinds.sum().item()
    return (x / scale + count // 2 - 3 * count + torch.full((WIDTH,), scale)).square().sum() * (count + 1)


LOSSES = {
    "masked experts": _masked_experts,
    "experts by row": _experts_by_row,
    "indexed experts": _indexed_experts,
    "sorted experts": _sorted_experts,
    "loss of some places": lambda net, x, kinds: F.cross_entropy(x[kinds != 0], kinds[kinds != 0]),
    "masked select": lambda net, x, kinds: x[..., 0].masked_select(kinds == 1).square().mean(),
    "embedding": lambda net, x, kinds: (
        (F.embedding(kinds[kinds > 0], net.table) * x[kinds > 0]).square().sum()
    ),
    "coordinates": lambda net, x, kinds: (
        (x[..., 0] * net.table[0, 0])[torch.nonzero(kinds).unbind(1)].square().sum()
    ),
    "one row at each": lambda net, x, kinds: x.index_put((kinds == 1,), net.table[0]).square().sum(),
    "recomputed": lambda net, x, kinds: checkpoint(_masked_experts, net, x, kinds, use_reentrant=False),
    "second dim": lambda net, x, kinds: (x[:, kinds[0] == 1] * net.table[0]).square().sum(),
    "none selected": _unused,
    "not finite elsewhere": _not_finite_elsewhere,
    "written at": _written_at,
    "two masks": _rows_of_two_masks,
    "pieces": _pieces,
    "places of another": _places_of_another,
    "statistics": _statistics,
    "numbers": _numbers,
}


MESHES: list[tuple[dict[str, int], str]] = [
    ({"data": 2}, "data"),
    ({"tensor": 2}, "tensor"),
    ({"data": 2, "tensor": 2}, "data*tensor"),
    ({"data": 4}, "zero3"),  # 4 does not divide the batch
]
EVERYWHERE = ("masked experts", "sorted experts")
CASES = [(name, MESHES[n % 4]) for n, name in enumerate(sorted(LOSSES)) if name not in EVERYWHERE]
CASES += [(name, mesh) for name in EVERYWHERE for mesh in MESHES]


def _training(name: str) -> Training:
    batch = lambda: (torch.randn(ROWS, LENGTH, WIDTH), torch.randint(0, EXPERTS, (ROWS, LENGTH)))  # noqa: E731
    return Training(lambda: Net(LOSSES[name]), batch, sgd, lambda output, _: output)


_captured = cache(lambda name: capture(_training(name)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "mesh"), CASES, ids=[f"{name}-{plan}" for name, (_, plan) in CASES])
def test_equals_eager_training(name: str, mesh: tuple[dict[str, int], str]) -> None:
    training, step = _training(name), _captured(name)
    check_equal(step, step.compile(*mesh), training, train_eagerly(training, 2))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["masked experts", "indexed experts", "loss of some places"])
def test_rows_stay_where_they_are(name: str) -> None:
    compiled = _captured(name).compile({"data": 2}, "data")
    sent = re.findall(
        r'"dist\.(all_gather|all_reduce|reduce_scatter|all_to_all|permute|broadcast)"',
        str(compiled.rank_module),
    )
    assert set(sent) == {"all_reduce"}


def _dropped(net: Net, x: Tensor, kinds: Tensor) -> Tensor:
    """1 for a number that dropout leaves out, 0 for one that it doubles; the parameters get
    gradients of 0.
    """
    chosen = torch.ones_like(x)[kinds == 0] + 0 * x[kinds == 0]
    kept = F.dropout(chosen, 0.5)
    return ((2 - kept) / 2).square().mean()


def test_dropout_of_some_places_is_the_same_on_every_mesh() -> None:
    training = replace(_training("numbers"), model=lambda: Net(_dropped))
    step = capture(training)
    losses = []
    for mesh, plan in MESHES:
        found, _ = Ranks(step, step.compile(mesh, plan).rank_module).train(training.batches(2))
        losses.append([values["loss", "loss"].item() for values in found])
    assert losses[0][0] != losses[0][1] and all(0.2 < loss < 0.8 for loss in losses[0])
    assert losses[1:] == [pytest.approx(losses[0])] * 3
