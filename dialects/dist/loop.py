"""``dist.loop``: the shards of a time axis, one after the other. Level 3."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Region, Result

from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.build import i64
from shardc.dialects.dist.check import check_axis
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Site, multiplied, tensor_type, verify
from shardc.dialects.dist.yield_op import expect_types, yielded


class LoopOp(Dist.Operation, name="loop", traits=[ir.IsIsolatedFromAboveTrait, ext.Pure]):
    """Runs its body once for each way of the time axis ``axis``.

    The body's arguments are the carried values, then the ``captures`` (the same in every iteration); it sees nothing
    else from outside. It yields the next carried values, then the values to be stacked. Results: the last carried
    values, then for each stacked value *i* its iterations one after the other along dim ``stack_dims[i]``.
    ``dist.slice`` and ``dist.offset`` over the axis give an iteration its part.

    ``%r:2 = "dist.loop"(%zero, %x) ({
    ^bb0(%sum: !torch.vtensor<[],f32>, %all: !torch.vtensor<[8,4],f32>):
      ...
      "dist.yield"(%next, %row) : (!torch.vtensor<[],f32>, !torch.vtensor<[2,4],f32>) -> ()
    }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, stack_dims = [0]}
    : (!torch.vtensor<[],f32>, !torch.vtensor<[8,4],f32>) -> (!torch.vtensor<[],f32>, !torch.vtensor<[8,4],f32>)``
    """

    inits: Sequence[Operand[Any]]
    captures: Sequence[Operand[Any]]
    outs: Sequence[Result[Any]]
    axis: Any  # a string or a #dist.axis
    stack_dims: ir.ArrayAttr
    body: Region

    def verify_invariants(self) -> bool:
        return verify(self, _check)

    def verify_region_invariants(self) -> bool:
        return verify(self, _check_body)


def _check(site: Site) -> None:
    axis = _axis(site)
    if not site.mesh.is_time(axis):
        raise Illegal(f"must be over a time axis; {axis.name!r} is a space axis")
    for outer in site.loops():
        if outer == axis or outer.overlaps(axis):
            raise Illegal(f"is over axis {axis.name!r}, and so is a loop around it")


def _check_body(site: Site) -> None:
    operands, carried = [v.type for v in site.op.operands], _carried_count(site)
    found = yielded(site)
    expect_types("body argument", operands, [a.type for a in site.op.regions[0].blocks[0].arguments])
    dims = [d.value for d in site.attribute("stack_dims", ir.ArrayAttr)]
    if len(found) != carried + len(dims):
        raise Illegal(f"must yield {carried} carried and {len(dims)} stacked values, not {len(found)} values")
    expect_types("carried value", operands[:carried], found[:carried])
    stacked = [_stacked(t, i, d, _axis(site).size) for i, (t, d) in enumerate(zip(found[carried:], dims, strict=True))]
    expect_types("result", [*operands[:carried], *stacked], [r.type for r in site.op.results])


def _axis(site: Site) -> Axis:
    if not site.has("axis"):
        raise LeftToMlir
    axis = site.axis(site.op.attributes["axis"])
    problem = check_axis(axis, site.mesh)
    if problem:
        raise Illegal(problem)
    return axis


def _carried_count(site: Site) -> int:
    return site.attribute("operandSegmentSizes", ir.DenseI32ArrayAttr)[0]


def _stacked(type_: ir.Type, index: int, dim: int, trips: int) -> TensorType:
    tensor = tensor_type(type_, f"stacked value {index}")
    if not 0 <= dim < len(tensor.shape):
        raise Illegal(f"stack_dims[{index}] is {dim}; {tensor} has dims 0 to {len(tensor.shape) - 1}")
    return multiplied(tensor, dim, trips)


def loop(
    inits: Sequence[ir.Value],
    captures: Sequence[ir.Value],
    axis: Axis,
    codec: ShardingCodec,
    *,
    stacked: Sequence[tuple[TensorType, int]] = (),
    loc: ir.Location,
    ip: ir.InsertionPoint,
) -> LoopOp:
    """A loop whose body is an empty block with its arguments; the caller fills it and ends it with a yield.

    ``stacked`` says for each value to be stacked its type in one iteration and the dim to stack along.
    """
    context = loc.context
    operands = [*inits, *captures]
    stacks = [write_type(multiplied(type_, dim, axis.size), context) for type_, dim in stacked]
    attributes = {
        "axis": codec.axes((axis,))[0],
        "stack_dims": ir.ArrayAttr.get([i64(dim, context) for _, dim in stacked], context),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inits), len(captures)], context),
    }
    results = [*(v.type for v in inits), *stacks]
    op = ir.Operation.create(LoopOp.OPERATION_NAME, results, operands, attributes, regions=1, loc=loc, ip=ip)
    op.regions[0].blocks.append(*(v.type for v in operands), arg_locs=[loc] * len(operands))
    return LoopOp(op) if not isinstance(op, LoopOp) else op
