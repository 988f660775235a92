"""``dist.loop``: the shards of a time axis, one after the other. Level 3."""

from collections.abc import Sequence
from typing import Any, Optional

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Region, Result

from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.build import i64, segments
from shardc.dialects.dist.check import check_axis
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.regions.yield_op import expect_types, group_types, yielded
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.dist.tuples import pack, tuple_type, unpack
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Site, multiplied, tensor_type, verify


class LoopOp(Dist.Operation, name="loop", traits=[ir.IsIsolatedFromAboveTrait, ext.Pure]):
    """Runs its body once for each way of the time axis ``axis``.

    Operands and results are tuples; one that would be empty is left out. The body's arguments are the
    elements of ``inits`` (the carried values), then those of ``captures`` (the same in every iteration); it
    sees nothing else from outside. It yields the next carried values, and the values to be stacked. Results:
    the last carried values, and for each stacked value *i* its iterations one after the other along dim
    ``stack_dims[i]``. ``dist.slice`` and ``dist.offset`` over the axis give an iteration its part.

    ``%sums, %rows = "dist.loop"(%zeros, %all) ({
    ^bb0(%sum: !torch.vtensor<[],f32>, %x: !torch.vtensor<[8,4],f32>):
      ...
      "dist.yield"(%next, %row) {operandSegmentSizes = array<i32: 1, 1>}
        : (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[2,4],f32>>) -> ()
    }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>,
    stack_dims = [0]} : (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[8,4],f32>>)
    -> (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[8,4],f32>>)``
    """

    axis: Any  # a string or a #dist.axis
    stack_dims: ir.ArrayAttr
    body: Region
    # The bindings read annotations when the class is made, and know this spelling of an optional operand or
    # result.
    inits: Optional[Operand[Any]] = None  # noqa: UP045
    captures: Optional[Operand[Any]] = None  # noqa: UP045
    carried: Optional[Result[Any]] = None  # noqa: UP045
    stacked: Optional[Result[Any]] = None  # noqa: UP045

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
    op = site.op
    carried, captured = group_types(op.operands, op.attributes, "operandSegmentSizes")
    following, stacked = yielded(site)
    expect_types("body argument", [*carried, *captured], [a.type for a in op.regions[0].blocks[0].arguments])
    expect_types("carried value", carried, following)
    dims = [d.value for d in site.attribute("stack_dims", ir.ArrayAttr)]
    if len(dims) != len(stacked):
        raise Illegal(f"stacks {len(stacked)} values, but stack_dims has {len(dims)}")
    ways = _axis(site).size
    stacks = [_stacked(t, i, d, ways) for i, (t, d) in enumerate(zip(stacked, dims, strict=True))]
    last, stacked_results = group_types(op.results, op.attributes, "resultSegmentSizes")
    expect_types("last carried value", carried, last)
    expect_types("stacked result", stacks, stacked_results)


def _axis(site: Site) -> Axis:
    if not site.has("axis"):
        raise LeftToMlir
    axis = site.axis(site.op.attributes["axis"])
    problem = check_axis(axis, site.mesh)
    if problem:
        raise Illegal(problem)
    return axis


def _stacked(type_: ir.Type, index: int, dim: int, ways: int) -> TensorType:
    tensor = tensor_type(type_, f"stacked value {index}")
    if not 0 <= dim < len(tensor.shape):
        raise Illegal(f"stack_dims[{index}] is {dim}, which {tensor} does not have")
    return multiplied(tensor, dim, ways)


def loop(
    inits: Sequence[ir.Value],
    captures: Sequence[ir.Value],
    axis: Axis,
    codec: ShardingCodec,
    *,
    stacked: Sequence[tuple[TensorType, int]] = (),
    loc: ir.Location,
    ip: ir.InsertionPoint,
) -> tuple[ir.Block, list[ir.Value], list[ir.Value]]:
    """The loop's body, an empty block that the caller fills and ends with ``yield_values``; the carried and
    the stacked results.

    ``stacked`` says for each value to be stacked its type in one iteration and the dim to stack along.
    """
    context = loc.context
    groups = [pack(group, loc=loc, ip=ip) for group in (inits, captures)]
    stacks = [write_type(multiplied(type_, dim, axis.size), context) for type_, dim in stacked]
    results = [[v.type for v in groups[0]], [tuple_type(stacks, context)] if stacks else []]
    with loc:
        attributes = {
            "axis": codec.axes((axis,))[0],
            "stack_dims": ir.ArrayAttr.get([i64(dim, context) for _, dim in stacked]),
            "operandSegmentSizes": segments(*groups),
            "resultSegmentSizes": segments(*results),
        }
    operands, types = [*groups[0], *groups[1]], [*results[0], *results[1]]
    op = ir.Operation.create(LoopOp.OPERATION_NAME, types, operands, attributes, regions=1, loc=loc, ip=ip)
    arguments = [v.type for v in (*inits, *captures)]
    body = op.regions[0].blocks.append(*arguments, arg_locs=[loc] * len(arguments))
    tuples = list(op.results)
    carried = unpack(tuples.pop(0), loc=loc, ip=ip) if inits else []
    return body, carried, unpack(tuples.pop(0), loc=loc, ip=ip) if stacks else []
