"""Small steps under plans that together use every kind of sharding, as the source of mutants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.passes.manager.pass_pipelines import build, run
from shardc.passes.manager.program import copy_module
from shardc.step.shard import compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.values import example_inputs

Key: TypeAlias = tuple[str, str]
BATCH, LENGTH, SIZE, WORDS = 8, 4, 8, 16


class Perceptron(nn.Module):
    """Two linear layers; ``hidden`` may be odd."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(SIZE, hidden), nn.Linear(hidden, SIZE)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        return F.mse_loss(self.down(F.gelu(self.up(x))), wanted)


class Convolutions(nn.Module):
    """Two convolutions. The second's channels are contracted, but for the gradient of its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        return F.mse_loss(self.second(F.gelu(self.first(x))), wanted)


class Block(nn.Module):
    """A transformer's block between an embedding and the cross entropy of a head, as a Llama has them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, SIZE), nn.Linear(SIZE, WORDS, bias=False)
        self.norm, self.last = nn.RMSNorm(SIZE), nn.RMSNorm(SIZE)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(SIZE, SIZE, bias=False) for _ in range(4)
        )
        self.gate_proj, self.up_proj = (nn.Linear(SIZE, 2 * SIZE, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * SIZE, SIZE, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.embed(ids)
        normed = self.norm(x)
        heads = lambda t: t.unflatten(-1, (2, SIZE // 2)).transpose(1, 2)  # noqa: E731
        q, k, v = (heads(p(normed)) for p in (self.q_proj, self.k_proj, self.v_proj))
        x = x + self.o_proj(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        normed = self.last(x)
        x = x + self.down_proj(F.silu(self.gate_proj(normed)) * self.up_proj(normed))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


TENSOR = {"q_proj": "colwise", "k_proj": "colwise", "v_proj": "colwise", "o_proj": "rowwise"} | {
    "gate_proj": "colwise",
    "up_proj": "colwise",
    "down_proj": "rowwise",
    "head": "colwise",
}
"""A plan as ``transformers`` models ship it."""


@dataclass(frozen=True)
class Source:
    """A model and the plan that it is compiled under."""

    model: Callable[[], nn.Module]
    mesh: Mapping[str, int]
    plan: str | Mapping[str, list[str | None]]
    micro_batches: int = 1
    packed: bool = False
    """Whether collectives of level 3 are packed."""


VOCABULARY: Mapping[str, list[str | None]] = {"head.weight": ["tensor"], "embed.weight": ["tensor"]}

CHANNELS: Mapping[str, list[str | None]] = {"second.weight": [None, "tensor"], "0": ["data"]}

SOURCES = {
    "data": Source(lambda: Perceptron(12), {"data": 2}, "data"),
    "zero3": Source(lambda: Perceptron(12), {"data": 4}, "zero3"),
    "tensor": Source(Block, {"data": 2, "tensor": 2}, "data*tensor"),
    "sequence": Source(Block, {"data": 2, "tensor": 2}, "zero3*sequence", packed=True),
    "vocabulary": Source(Block, {"data": 2, "tensor": 2}, VOCABULARY),
    "micro": Source(Block, {"data": 2}, "zero2", 2),
    "padded": Source(lambda: Perceptron(5), {"tensor": 2}, {"up.weight": ["tensor"]}, 2),
    "convolution": Source(Convolutions, {"data": 2, "tensor": 2}, CHANNELS),
    "pipeline": Source(Block, {"data": 2, "stage": 2}, "data*pipeline:stage", 2),
}


@dataclass(frozen=True)
class Subject:
    """A step at levels 1, 2 and 3, and values for its arguments."""

    one: ir.Module
    two: ir.Module
    three: ir.Module
    inputs: Mapping[Key, Tensor]

    @property
    def context(self) -> ir.Context:
        return self.one.context


def _batch(model: nn.Module) -> tuple[Tensor, ...]:
    if isinstance(model, Block):
        ids = torch.randint(0, WORDS, (BATCH, LENGTH))
        return ids, ids.roll(1, 1)
    shape = (BATCH, 2, 4, 4) if isinstance(model, Convolutions) else (BATCH, SIZE)
    return torch.randn(shape), torch.randn(shape)


@cache
def subject(name: str) -> Subject:
    """One of ``SOURCES``, compiled once in a process."""
    source = SOURCES[name]
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        model = source.model()
        with torch.no_grad():  # else norms' weights are all one, and what is done with them does not show
            for parameter in model.parameters():
                parameter.add_(torch.rand_like(parameter), alpha=0.3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batch = _batch(model)
        capture = capture_step(model, optimizer, batch, context=new_context())
    finally:
        torch.set_default_dtype(torch.float32)
    mesh = make_mesh(source.mesh, source.micro_batches)
    compiled = compile_capture(capture, mesh, source.plan, model_plan=TENSOR)
    context = capture.module.context
    one, two = (ir.Module.parse(compiled.levels[level], context) for level in ("1-global", "2-annotated"))
    three = copy_module(two)
    run(three, build("dist-partition,dist-combine" if source.packed else "dist-partition"))
    return Subject(one, two, three, example_inputs(capture, optimizer, batch))
