"""Random graphs of fusible ops: the fused graph is the unfused one, in f64 and in its own dtypes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from shardc.backends.eager.interpreter import run

from .conftest import assert_near, traced

aten = torch.ops.aten
COUNT = int(os.environ.get("SHARDC_RANDOM_GRAPHS", "60"))
"""How many graphs each test draws; more by hand: SHARDC_RANDOM_GRAPHS=2000."""

SHAPE = (3, 4, 6)
UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.tanh,
    torch.sigmoid,
    aten.silu,
    aten.gelu,
    torch.sin,
    torch.neg,
    torch.abs,
    lambda x: x * 0.7 + 0.1,
    lambda x: (x.abs() + 0.5).rsqrt(),
    lambda x: (x.abs() + 0.5).log(),
    lambda x: x.clamp(-1, 1),
    lambda x: x.tanh().exp(),
]
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    lambda x, y: x / (y.abs() + 1),
    lambda x, y: torch.where(x > y, x, y),
    lambda x, y: torch.lerp(x, y, 0.3),
    aten.sigmoid_backward,
]
ROWS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.softmax(-1),
    lambda x: x.log_softmax(-1),
    lambda x: x - x.mean(-1, keepdim=True),
    lambda x: x.sum(-1, keepdim=True) * x,
    lambda x: x.amax(-1, keepdim=True) + x,
    lambda x: x * x.var(-1, keepdim=True),
    lambda x: aten.native_layer_norm(x, [x.shape[-1]], None, None, 1e-3)[0],
    lambda x: x.sum((0, 1)) + x,
]
VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.reshape(12, 6).sigmoid().reshape(SHAPE),
    lambda x: x.transpose(0, 1).tanh().transpose(0, 1),
    lambda x: x.reshape(3, 24).neg().reshape(3, 4, 2, 3).exp().reshape(SHAPE),
    lambda x: x[:, 1:2] + x,
    lambda x: x[1].unsqueeze(0) * x,
    lambda x: x[..., :1] - x,
    lambda x: x[0, 0] * x,
    lambda x: x.permute(2, 0, 1).abs().permute(1, 2, 0),
]
OTHERS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.cumsum(-1),
    lambda x: x @ x.transpose(-1, -2) @ x * 0.1,
]


def draw(seed: int) -> Callable[..., tuple[Tensor, ...]]:
    """A function of two tensors of SHAPE, of up to 14 steps; some of its values are its results."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        rng = random.Random(seed)
        values = [x, y]
        for _ in range(rng.randint(3, 14)):
            kind = rng.choices((UNARY, BINARY, ROWS, VIEWS, OTHERS), (5, 5, 3, 3, 1))[0]
            operands = [rng.choice(values[-4:]) for _ in range(2 if kind is BINARY else 1)]
            values.append(
                rng.choice(kind)(*operands).clamp(-50, 50)
                if rng.random() < 0.2
                else rng.choice(kind)(*operands)
            )
        kept = rng.sample(values[2:], min(len(values) - 2, rng.randint(1, 3)))
        return tuple(dict.fromkeys([*kept, values[-1]]))

    return f


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(COUNT))
def test_random_graph(fuse: Any, seed: int) -> None:
    torch.manual_seed(seed)
    tensors = torch.randn(2, *SHAPE).unbind()
    f = draw(seed)
    done = fuse(f, *tensors)
    for found, expected in zip(done.results, f(*tensors), strict=True):
        assert_near(found, expected)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(COUNT // 6))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_random_graph_in_16_bits(fuse: Any, seed: int, dtype: torch.dtype) -> None:
    """With eager's rounding: as far from f64 as eager is, give or take a factor."""
    torch.manual_seed(seed)
    tensors = [t.to(dtype) for t in torch.randn(2, *SHAPE).unbind()]
    f = draw(seed)
    done = fuse(f, *tensors, rounding="eager")
    exact = [r for [r] in run(traced(f, tensors), [[t] for t in tensors], widen=True)]
    for found, eager, wide in zip(done.results, f(*tensors), exact, strict=True):
        far = (eager.double() - wide).abs().max()
        ours = (found.double() - wide).abs().max()
        assert ours <= 4 * far + 8 * torch.finfo(dtype).eps * wide.abs().max()
