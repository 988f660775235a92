"""Builders of ``dist`` ops: results verify, parse back, and have the types of the op's rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.context import new_context
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.collectives.all_gather import all_gather
from shardc.dialects.dist.collectives.all_reduce import all_reduce
from shardc.dialects.dist.collectives.all_to_all import all_to_all
from shardc.dialects.dist.collectives.broadcast import broadcast
from shardc.dialects.dist.collectives.exchange import exchange
from shardc.dialects.dist.collectives.permute import permute, senders
from shardc.dialects.dist.collectives.reduce_scatter import reduce_scatter
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.mesh import Mesh, MeshAxis, write_mesh
from shardc.dialects.dist.offset import offset
from shardc.dialects.dist.partial import to_partial
from shardc.dialects.dist.regions.loop import loop
from shardc.dialects.dist.regions.manual import manual
from shardc.dialects.dist.regions.yield_op import yield_values
from shardc.dialects.dist.reshard import reshard
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.dist.slice import slice_block

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 4), MeshAxis("micro", 4, "time")))
DATA, TENSOR, MICRO = (MESH.whole(a.name) for a in MESH.axes)
HALF = Axis("tensor", 2, 2)
ROWS = Sharding(((DATA,), ()))
X = TensorType((4, 8), torch.float32)


class Function:
    """A module with a mesh and an empty function of one 4 x 8 argument, to build in."""

    def __init__(self) -> None:
        self.context = new_context()
        self.module = ir.Module.parse(f"func.func @f(%x: {X}) {{\n return\n}}", self.context)
        write_mesh(self.module, MESH)
        self.codec = ShardingCodec(self.context, MESH)
        self.block = self.module.body.operations[1].regions[0].blocks[0]
        self.x = self.block.arguments[0]
        self.at = {
            "loc": ir.Location.file("model.py", 3, 1, self.context),
            "ip": ir.InsertionPoint(self.block.operations[0]),
        }

    def check(self) -> None:
        assert self.module.operation.verify()
        text = str(self.module)
        assert str(ir.Module.parse(text, self.context)) == text


Build = Callable[[Function], ir.Value]


@pytest.mark.parametrize(
    ("shape", "build"),
    [
        ((4, 8), lambda f: all_reduce(f.x, (DATA, HALF), "max", f.codec, **f.at)),
        ((4, 32), lambda f: all_gather(f.x, 1, (TENSOR,), f.codec, **f.at)),
        ((4, 1), lambda f: reduce_scatter(f.x, 1, (DATA, TENSOR), "sum", f.codec, **f.at)),
        ((2, 16), lambda f: all_to_all(f.x, 0, 1, (HALF,), f.codec, **f.at)),
        ((4, 8), lambda f: broadcast(f.x, (DATA,), 1, f.codec, **f.at)),
        ((4, 8), lambda f: exchange(f.x, (DATA,), (-1, 0), f.codec, **f.at)),
        ((4, 8), lambda f: permute(f.x, ROWS, Sharding(((HALF,), ())), f.codec, **f.at)),
        ((1, 8), lambda f: slice_block(f.x, 0, (MICRO,), f.codec, **f.at)),
        ((4, 8), lambda f: to_partial(f.x, (DATA,), f.codec, **f.at)),
        ((4, 8), lambda f: reshard(f.x, ROWS, f.codec, **f.at)),
        ((4, 8), lambda f: constraint(f.x, Sharding(((DATA,), ()), (), (False, True)), f.codec, **f.at)),
    ],
    ids=lambda p: "x".join(map(str, p)) if isinstance(p, tuple) else "",
)
def test_value(shape: tuple[int, ...], build: Build) -> None:
    function = Function()
    made = build(function)
    assert read_type(made.type) == X.with_shape(shape)
    assert "model.py" in str(made.owner.location)
    function.check()


def test_offset_from_a_number_and_from_a_value() -> None:
    function = Function()
    start = offset((DATA,), 4, function.codec, base=3, **function.at)
    made = offset((MICRO,), 1, function.codec, scale=2, base=start, **function.at)
    assert list(made.owner.operands) == [start]
    function.check()


def test_loop_carries_and_stacks() -> None:
    function, row = Function(), X.with_shape((1, 8))
    codec, loc = function.codec, function.at["loc"]
    body, (carried,), (stacked,) = loop(
        [function.x], [function.x], MICRO, codec, stacked=[(row, 0)], **function.at
    )
    ip = ir.InsertionPoint(body)
    part = slice_block(body.arguments[1], 0, (MICRO,), codec, loc=loc, ip=ip)
    yield_values([body.arguments[0]], [part], loc=loc, ip=ip)
    assert [read_type(v.type) for v in (carried, stacked)] == [X, X]
    function.check()


def test_loop_that_stacks_alone() -> None:
    function = Function()
    body, carried, (stacked,) = loop([], [function.x], MICRO, function.codec, stacked=[(X, 1)], **function.at)
    yield_values([], [body.arguments[0]], loc=function.at["loc"], ip=ir.InsertionPoint(body))
    assert (carried, read_type(stacked.type)) == ([], X.with_shape((4, 32)))
    function.check()


def test_manual_sees_blocks() -> None:
    function = Function()
    body, (out,) = manual([function.x], [ROWS], [X], [ROWS], (DATA,), function.codec, **function.at)
    yield_values([body.arguments[0]], loc=function.at["loc"], ip=ir.InsertionPoint(body))
    assert read_type(body.arguments[0].type) == X.with_shape((2, 8))
    assert read_type(out.type) == X
    function.check()


def test_equal_collectives_are_merged_and_unused_ones_dropped() -> None:
    function = Function()
    sums = [all_reduce(function.x, (DATA,), "sum", function.codec, **function.at) for _ in range(3)]
    all_gather(function.x, 0, (DATA,), function.codec, **function.at)
    ir.Operation.create(
        "torch.aten.add.Tensor", [function.x.type], _add(function, sums[0], sums[1]), **function.at
    )
    PassManager.parse("builtin.module(cse)", function.context).run(function.module.operation)
    text = str(function.module)
    assert (text.count("dist.all_reduce"), text.count("dist.all_gather")) == (1, 0)


def _add(function: Function, a: ir.Value, b: ir.Value) -> list[ir.Value]:
    one = ir.Operation.create(
        "torch.constant.int",
        [ir.Type.parse("!torch.int", function.context)],
        attributes={"value": ir.IntegerAttr.get(ir.IntegerType.get_signless(64, function.context), 1)},
        **function.at,
    )
    return [a, b, one.result]


def test_senders_are_a_permutation_that_keeps_what_stays() -> None:
    """On 2 x 4 ranks, from blocks by (data, tensor) to blocks by (tensor, data)."""
    source, target = Sharding(((DATA, TENSOR),)), Sharding(((TENSOR, DATA),))
    sender = senders(source, target, MESH)
    assert sorted(sender) == list(range(8))
    assert (sender[0], sender[7]) == (0, 7)
    for rank, giver in enumerate(sender):
        assert MESH.index(giver, source.dims[0]) == MESH.index(rank, target.dims[0])
