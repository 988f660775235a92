"""Users' constraints on activations, in a model's code and by module names, decide the shardings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.plan import (
    AxisUsedTwice,
    BadShardingEntry,
    ConstrainsNothing,
    TooManyDims,
    UnknownAxis,
)
from shardc.options.constraints import parse_constraints
from shardc.step.compile_step import CompiledStep
from shardc.step.levels import ANNOTATED

MESH = {"data": 2, "tensor": 2}


class Block(nn.Module):
    def __init__(self, said: object = None) -> None:
        super().__init__()
        self.up, self.down, self.said = nn.Linear(16, 32), nn.Linear(32, 16), said

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.up(x))
        if self.said is not None:
            hidden = shardc.constrain(hidden, self.said)
        return x + self.down(hidden)


class Net(nn.Module):
    def __init__(self, said: object = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(said) for _ in range(5))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return (x - y).square().mean()


def compiled(
    said: object = None, constraints: Mapping[str, object] | None = None, **options: object
) -> CompiledStep:
    torch.manual_seed(0)
    model = Net(said)
    batch = torch.randn(16, 6, 16), torch.randn(16, 6, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    more = {"mesh": MESH, "plan": "data", "constraints": constraints, "fuse": False, **options}
    return shardc.compile_step(model, optimizer, batch, **more)


def collectives(step: CompiledStep, kind: str) -> int:
    return step.compiled.rank_module.operation.get_asm().count(f'"dist.{kind}"')


@pytest.mark.sampled(1)
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("way", ["in the code", "by name"])
def test_an_activation_cuts_the_products_around_it(way: str, micro_batches: int) -> None:
    layout = ["data", None, "tensor"]
    said = layout if way == "in the code" else None
    by_name = {"layers.*.up": layout} if way == "by name" else None
    step = compiled(said, by_name, micro_batches=micro_batches)
    assert compiled(micro_batches=micro_batches).compiled.work.share == pytest.approx(1 / 2)
    assert step.compiled.work.share == pytest.approx(1 / 4)
    assert collectives(step, "all_gather") == 0
    assert step.check().passed


def test_one_layer_of_five_lies_as_it_says() -> None:
    step = compiled(constraints={"layers.2": ["data", "tensor"], "layers.*": ["data"]})
    ops = [line for line in step.compiled.levels[ANNOTATED].splitlines() if '"dist.constraint"' in line]
    forward = [line for line in ops if 'dist.phase = "forward"' in line]
    cut = [
        line
        for line in forward
        if 'sharding = #dist.sharding<@mesh, [["data"], ["tensor"], []], []>}' in line
    ]
    assert (len(forward), len(ops), len(cut)) == (5, 10, 1)
    assert step.check().passed


def test_open_dims_are_left_to_propagation() -> None:
    step = compiled(constraints={"layers.*.up": ["?", "?", "tensor"]})
    assert step.compiled.work.share == pytest.approx(1 / 4)
    assert step.check().passed


def test_whole_gathers() -> None:
    step = compiled(constraints={"layers.4": "whole"})
    assert collectives(step, "all_gather") > 0
    assert step.check().passed


@pytest.mark.slow
def test_with_a_pipeline_and_recomputation() -> None:
    layout = {"layers.*.up": ["data", None, "tensor"]}
    mesh = {"pipe": 2, "data": 2, "tensor": 2}
    step = compiled(constraints=layout, mesh=mesh, plan="pipeline*data", micro_batches=4)
    assert step.check().passed
    assert compiled(constraints=layout, recompute="full").check().passed


def test_eager_values_are_the_tensor_itself() -> None:
    x = torch.randn(3, 4)
    assert shardc.constrain(x, ["data", None]) is x


def _wrong() -> Iterator[tuple[Mapping[str, object], type[ShardcError], str]]:
    yield {"layer.*": ["data"]}, ConstrainsNothing, "the nearest are layers"
    yield {"unused": ["data"]}, ConstrainsNothing, "which the step never calls"
    yield {"layers.1": ["data", None, None, None]}, TooManyDims, "has 4 dims"
    yield {"layers.1": ["data", 4]}, BadShardingEntry, "entry 4"
    yield {"layers.1": "tensor"}, BadShardingEntry, "entry 'tensor'"
    yield {"layers.1": ["data", "data"]}, AxisUsedTwice, "'data' twice"
    yield {"layers.1": ["dat"]}, UnknownAxis, "name the axis: data"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("constraints", "error", "text"), _wrong(), ids=lambda value: str(value)[:30])
def test_what_is_wrong_is_named(
    constraints: Mapping[str, object], error: type[ShardcError], text: str
) -> None:
    with pytest.raises(error, match=text):
        compiled(constraints=constraints)


def test_the_users_line_is_named() -> None:
    with pytest.raises(UnknownAxis) as raised:
        compiled(["dat"])
    assert Path(__file__).name in str(raised.value)


def test_the_command_lines_text() -> None:
    text = "layers.*.mlp=data,-,tensor+context; head = whole"
    assert parse_constraints(text) == {"layers.*.mlp": ["data", None, ["tensor", "context"]], "head": "whole"}
