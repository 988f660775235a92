"""``dist.loop``: a loop over the iterations of a time axis. Level 3."""

from collections.abc import Sequence
from typing import Any, Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Region

from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.build import At, attributes, empty_body, segments
from shardc.dialects.dist.check import check_axis
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.regions.yield_op import expect_types, group_types, yielded
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.dist.tuples import pack, tuple_type, unpack
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Operand, RegionOp, Result, Site, tensor_type


class LoopOp(RegionOp, dialect=Dist, name="loop", traits=[ir.IsIsolatedFromAboveTrait, ext.Pure]):
    """Runs its body once for each iteration of the time axis ``axis``.

    Operands and results are tuples; an empty tuple is left out. The body's arguments are the elements of
    ``inits`` (the carried values), then those of ``captures`` (the same in every iteration); the body reads
    nothing else from outside. It yields the next carried values, and the values to stack. Results are the
    last carried values, and for each stacked value *i* the values of all iterations, concatenated along dim
    ``stack_dims[i]``. In the body, ``dist.slice`` and ``dist.offset`` over the axis select an iteration's
    part.

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
    inits: Operand | None = None
    captures: Operand | None = None
    carried: Result | None = None
    stacked: Result | None = None

    def check(self, site: Site) -> None:
        axis = _axis(site)
        if not site.mesh.is_time(axis):
            raise Illegal(f"must be over a time axis; {axis.name!r} is a space axis")
        for outer in site.loops():
            if outer == axis or outer.overlaps(axis):
                raise Illegal(f"is over axis {axis.name!r}, and so is a loop around it")

    def check_body(self, site: Site) -> None:
        op = site.op
        carried, captured = group_types(op.operands, op.attributes, "operandSegmentSizes")
        following, stacked = yielded(site)
        expect_types("body argument", [*carried, *captured], [a.type for a in site.body().arguments])
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
    if problem := check_axis(axis, site.mesh):
        raise Illegal(problem)
    return axis


def _stacked(type_: ir.Type, index: int, dim: int, ways: int) -> TensorType:
    tensor = tensor_type(type_, f"stacked value {index}")
    if not 0 <= dim < len(tensor.shape):
        raise Illegal(f"stack_dims[{index}] is {dim}, which {tensor} does not have")
    return tensor.scaled(dim, ways)


def loop(
    inits: Sequence[ir.Value],
    captures: Sequence[ir.Value],
    axis: Axis,
    codec: ShardingCodec,
    *,
    stacked: Sequence[tuple[TensorType, int]] = (),
    **at: Unpack[At],
) -> tuple[ir.Block, list[ir.Value], list[ir.Value]]:
    """Build a loop. Return its body, the carried results and the stacked results.

    The body is an empty block, which the caller fills and ends with ``yield_values``. ``stacked`` gives, for
    each value to stack, its type in one iteration and the dim to stack along.
    """
    context = at["loc"].context
    groups = [pack(group, **at) for group in (inits, captures)]
    stacks = [write_type(type_.scaled(dim, axis.size), context) for type_, dim in stacked]
    results = [[v.type for v in groups[0]], [tuple_type(stacks, context)] if stacks else []]
    said = attributes(context, axis=codec.axes((axis,))[0], stack_dims=[dim for _, dim in stacked])
    said["operandSegmentSizes"] = segments(context, *groups)
    said["resultSegmentSizes"] = segments(context, *results)
    operands, types = [*groups[0], *groups[1]], [*results[0], *results[1]]
    op = ir.Operation.create(LoopOp.OPERATION_NAME, types, operands, said, regions=1, **at)
    body = empty_body(op, [v.type for v in (*inits, *captures)])
    tuples = list(op.results)
    carried = unpack(tuples.pop(0), **at) if inits else []
    return body, carried, unpack(tuples.pop(0), **at) if stacks else []
