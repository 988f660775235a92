"""Dims that do not divide: sharded with no more collectives than even ones, and equal to eager training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import pytest
import torch
from models import Training, llama, sgd, sum_of_squares
from torch import Tensor, nn
from training import capture, check_equal, train_eagerly

COLLECTIVES = re.compile(r'"dist\.(all_gather|all_reduce|reduce_scatter|all_to_all|permute|broadcast)"')


@dataclass(frozen=True)
class Sizes:
    """What may not divide. ``more`` are settings of the model."""

    batch: int = 4
    length: int = 16
    vocab: int = 64
    more: Mapping[str, int] = field(default_factory=dict)

    @property
    def llama(self) -> Training:
        def tokens() -> Any:
            ids = torch.randint(0, self.vocab, (self.batch, self.length))
            return {"input_ids": ids, "labels": ids.clone()}

        return Training(lambda: llama(vocab_size=self.vocab, num_hidden_layers=1, **self.more), tokens)

    @property
    def layers(self) -> Training:
        def model() -> nn.Module:
            sizes = {"features": 10, "hidden": 12, "out": 6, **self.more}
            first = nn.Linear(sizes["features"], sizes["hidden"], bias="features" not in self.more)
            return nn.Sequential(
                first, nn.GELU(), nn.Linear(sizes["hidden"], sizes["out"], bias="out" not in self.more)
            )

        features = self.more.get("features", 10)
        return Training(model, lambda: (torch.randn(self.batch, features),), loss=sum_of_squares)


def heads(count: int) -> Sizes:
    return Sizes(more={"hidden_size": 8 * count, "num_attention_heads": count, "num_key_value_heads": count})


EVEN = Sizes()
ODD, EVENED = {"features": 11, "hidden": 33, "out": 9}, {"features": 12, "hidden": 34, "out": 10}
"""Without biases: vectors that do not divide stay whole."""
CASES: list[tuple[str, Sizes, Sizes, dict[str, int], str, int]] = [
    ("layers", Sizes(3), EVEN, {"data": 2}, "data", 1),
    ("layers", Sizes(5), Sizes(8), {"data": 4}, "data", 1),
    ("layers", Sizes(5), Sizes(8), {"data": 2}, "zero2", 2),
    ("layers", Sizes(3), EVEN, {"data": 2}, "zero3", 1),
    ("layers", Sizes(more={"hidden": 33}), Sizes(more={"hidden": 34}), {"tensor": 2}, "tensor", 1),
    (
        "layers",
        Sizes(3, more={"hidden": 33}),
        Sizes(more={"hidden": 34}),
        {"data": 2, "tensor": 2},
        "data*tensor",
        1,
    ),
    ("layers", Sizes(more=ODD), Sizes(more=EVENED), {"data": 2}, "zero3", 1),
    ("layers", Sizes(more=ODD), Sizes(more=EVENED), {"data": 2}, "zero1", 2),
    ("llama", Sizes(3), EVEN, {"data": 2}, "data", 1),
    ("llama", Sizes(vocab=101), Sizes(vocab=102), {"tensor": 2}, "tensor", 1),
    ("llama", heads(3), heads(4), {"tensor": 2}, "tensor", 1),
    ("llama", heads(6), heads(8), {"tensor": 4}, "tensor", 1),
    ("llama", Sizes(length=15), EVEN, {"tensor": 2}, "sequence", 1),
    ("llama", Sizes(3, 15, 101), Sizes(4, 16, 102), {"data": 2, "tensor": 2}, "zero3*sequence", 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "uneven", "even", "mesh", "plan", "micro_batches"),
    CASES,
    ids=[f"{m}-{n}-{p}" for n, (m, _, _, _, p, _) in enumerate(CASES)],
)
def test_equal_and_no_collective_more(
    model: str, uneven: Sizes, even: Sizes, mesh: dict[str, int], plan: str, micro_batches: int
) -> None:
    training = getattr(uneven, model)
    step = capture(training, clip=0.5)
    compiled = step.compile(mesh, plan, micro_batches)
    check_equal(step, compiled, training, train_eagerly(training, clip=0.5))
    like = capture(getattr(even, model), clip=0.5).compile(mesh, plan, micro_batches)
    sent, usual = (Counter(COLLECTIVES.findall(str(c.rank_module))) for c in (compiled, like))
    assert sent == usual
    assert "dist.padded" in str(compiled.rank_module) and "dist.padded" not in str(like.rank_module)


class Directions(nn.Module):
    """Rows over their length: a row of zeros, as padding is, makes NaN, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5, bias=False), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x / x.pow(2).sum(-1, keepdim=True).sqrt()).log_softmax(-1))


NORM = nn.BatchNorm1d
PADDING_SEEN: list[tuple[str, Callable[[], nn.Module]]] = [
    ("nan", Directions),
    ("batch_norm", lambda: nn.Sequential(nn.Linear(6, 5), NORM(5), nn.ReLU(), nn.Linear(5, 3), NORM(3))),
    ("layer_norm", lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Softplus(), nn.Linear(5, 3))),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "model"), PADDING_SEEN, ids=[name for name, _ in PADDING_SEEN])
@pytest.mark.parametrize("batch", [5, 7])
def test_padding_reaches_no_result(name: str, model: Callable[[], nn.Module], batch: int) -> None:
    training = Training(model, lambda: (torch.randn(batch, 6),), sgd, sum_of_squares)
    step = capture(training)
    check_equal(step, step.compile({"data": 4}, "data"), training, train_eagerly(training))


def test_masks_are_of_a_number_a_row() -> None:
    """What follows a filled norm is finite, so that no activation is filled: zeros in the gradient do."""
    module = capture(Sizes(3).llama).compile({"data": 2}, "data").rank_module
    sizes = re.findall(r"where\.ScalarOther.* -> !torch\.vtensor<\[([\d,]+)\]", str(module))
    tokens = 2 * 16  # on each device
    assert sizes and all(prod(map(int, size.split(","))) <= tokens for size in sizes), sizes


def test_more_ranks_than_heads_and_micro_batches() -> None:
    """Heads change hands within a micro-batch: four of queries and two of keys over eight ranks."""
    training = Sizes(3).llama
    step = capture(training)
    compiled = step.compile({"tensor": 8}, "tensor", 3)
    assert "dist.permute" in str(compiled.rank_module)
    check_equal(step, compiled, training, train_eagerly(training))
