"""Weights that are several in one, under tensor parallelism:
three steps against eager training, to 1e-9, and no gather.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from models import TRAININGS, Training, sgd, sum_of_squares
from torch import Tensor, nn
from torch.nn import functional
from training import capture, check_equal, train_eagerly

from shardc.report.traffic import transfers
from shardc.step.fuse_step import fuse_step
from shardc.step.shard import Compiled

GRID = {"data": 2, "tensor": 2}


class Attention(nn.Module):
    """Queries in ``heads`` heads, keys and values in fewer, of one weight."""

    def __init__(self, heads: int = 4, grouped: int = 2, depth: int = 4) -> None:
        super().__init__()
        self.sizes, self.depth = (heads * depth, grouped * depth, grouped * depth), depth
        self.qkv, self.out = nn.Linear(12, sum(self.sizes)), nn.Linear(heads * depth, 12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (-1, self.depth)).transpose(1, 2) for t in self.qkv(x).split(self.sizes, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """Gate and up of one weight, without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Linear(12, 32, bias=False), nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(functional.silu(gate) * up)


class Indexed(Gated):
    """The halves by index, whose gradients are padded and added, and one of them twice."""

    def forward(self, x: Tensor) -> Tensor:
        both = self.gate_up(x)
        return self.down(functional.silu(both[..., :16]) * both[..., 16:] + both[..., :16])


class Layered(Gated):
    """Three parts, of which two are taken together first."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up = nn.Linear(12, 48)

    def forward(self, x: Tensor) -> Tensor:
        gate, rest = self.gate_up(x).split((16, 32), -1)
        up, more = rest.chunk(2, -1)
        return self.down(functional.silu(gate) * up + more)


class Norms(Gated):
    """All columns in their order are looked at in between, so that the weight is put together for that."""

    def forward(self, x: Tensor) -> Tensor:
        both = self.gate_up(x)
        gate, up = both.chunk(2, -1)
        return self.down(functional.silu(gate) * up) + both.cumsum(-1)[..., :12]


def rows() -> Any:
    return {"x": torch.randn(4, 6, 12)}


MODELS: dict[str, Callable[[], nn.Module]] = {
    "attention": Attention,
    "gated": Gated,
    "indexed": Indexed,
    "layered": Layered,
}


def collectives(compiled: Compiled) -> set[str]:
    """The kinds over ``tensor``, of more than a number."""
    return {t.kind for t in transfers(compiled.rank_module) if "tensor" in t.axes and t.type.numel > 1}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("plan", ["data*tensor", "zero3*tensor", "mapping"])
def test_cut_without_a_gather(name: str, plan: str) -> None:
    training = Training(MODELS[name], rows, loss=sum_of_squares)
    step = capture(training, clip=0.5)
    weight = "qkv.weight" if name == "attention" else "gate_up.weight"
    compiled = step.compile(GRID, {weight: ["tensor"], "x": ["data"]} if plan == "mapping" else plan, 2)
    assert "dist.interleaved" in str(compiled.rank_module)
    assert collectives(compiled) == {"all_reduce"}
    check_equal(step, compiled, training, train_eagerly(training, clip=0.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plan", "micro_batches"),
    [
        ("gpt2", "data*tensor", 1),
        ("gpt2", "zero3*tensor", 2),
        ("gpt2", "data*sequence", 1),
        ("gpt2", "zero2*sequence", 2),
        ("mamba", "data*tensor", 1),
        ("mamba", "zero3*sequence", 1),
    ],
)
def test_models(name: str, plan: str, micro_batches: int) -> None:
    training = replace(TRAININGS[name], optimizer=sgd) if micro_batches > 1 else TRAININGS[name]
    step = capture(training)
    compiled = step.compile(GRID, plan, micro_batches)
    assert "dist.interleaved" in str(compiled.rank_module)
    check_equal(step, compiled, training, train_eagerly(training))


@pytest.mark.slow
def test_four_ways_with_kernels() -> None:
    training = TRAININGS["gpt2"]
    step = capture(training)
    compiled = step.compile({"tensor": 4}, "tensor")
    assert collectives(compiled) == {"all_reduce"}
    fuse_step(compiled)
    check_equal(step, compiled, training, train_eagerly(training))


def test_what_looks_at_all_columns_gets_them_in_order() -> None:
    """A user cuts the weight all the same. It is no weight of parts then, or is put together: equal either
    way.
    """
    training = Training(Norms, rows, loss=sum_of_squares)
    step = capture(training)
    compiled = step.compile(GRID, {"gate_up.weight": ["tensor"], "x": ["data"]})
    check_equal(step, compiled, training, train_eagerly(training))


def test_parts_that_do_not_divide_stay_as_they_are() -> None:
    training = Training(lambda: Attention(6, 3, 4), rows, loss=sum_of_squares)
    step = capture(training)
    compiled = step.compile(GRID, {"qkv.weight": ["tensor"], "x": ["data"]})
    assert "dist.interleaved" not in str(compiled.rank_module)
    check_equal(step, compiled, training, train_eagerly(training))
