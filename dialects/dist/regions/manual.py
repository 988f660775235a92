"""``dist.manual``: a region written for one device, inside a program on global shapes. Level 2."""

from collections.abc import Sequence
from math import prod
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Region

from shardc.dialects.aten.call import draws, target_name
from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.build import At, empty_body
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.regions.yield_op import elements_of, expect_types, yielded
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.dist.tuples import pack, tuple_type, unpack
from shardc.dialects.dist.verifier import Illegal, Operand, RegionOp, Result, Site, divided, tensor_type


class ManualOp(RegionOp, dialect=Dist, name="manual", traits=[ir.IsIsolatedFromAboveTrait, ext.Pure]):
    """Runs its body on each device, on blocks of its operands: manual over ``axes``, global over all others.

    ``in_shardings`` are the layouts of the operands, ``out_shardings`` those of the results. The body's types
    are the global types divided by the manual axes. In each dim the manual axes come before any others. The
    body must not draw random numbers: it does not know the offset of its block, so every device would draw
    the numbers of the first block.

    ``%1 = "dist.manual"(%0) ({
    ^bb0(%block: !torch.vtensor<[2,8],f32>):
      %2 = torch.prim.TupleConstruct %block : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
      "dist.yield"(%2) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
    }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>],
        out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]}
    : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>``
    """

    axes: ir.ArrayAttr
    in_shardings: ir.ArrayAttr
    out_shardings: ir.ArrayAttr
    body: Region
    ins: Operand | None = None
    outs: Result | None = None

    def check(self, site: Site) -> None:
        axes = site.axes()
        _locals(site, site.op.operands, "in_shardings", axes)
        _locals(site, site.op.results, "out_shardings", axes)

    def check_body(self, site: Site) -> None:
        axes, (values, stacked) = site.axes(), yielded(site)
        if stacked:
            raise Illegal("runs its body once: it has no values to stack")
        ins = _locals(site, site.op.operands, "in_shardings", axes)
        outs = _locals(site, site.op.results, "out_shardings", axes)
        _check_draws(site.op.regions[0].blocks[0])
        expect_types("body argument", ins, [a.type for a in site.op.regions[0].blocks[0].arguments])
        expect_types("yielded value", outs, values)


def _check_draws(block: ir.Block) -> None:
    for op in (o.operation for o in block.operations):
        if draws(op):
            problem = f"draws random numbers in its body ({target_name(op)})"
            raise Illegal(f"{problem}; draw them before it and pass them in", op.location)
        for region in op.regions:
            for inner in region.blocks:
                _check_draws(inner)


def _locals(site: Site, values: Sequence[ir.Value], name: str, axes: Axes) -> list[TensorType]:
    """Return the types that the elements of a tuple have inside the body."""
    types = elements_of(values)
    attributes = list(site.attribute(name, ir.ArrayAttr))
    if len(attributes) != len(types):
        raise Illegal(f"must have {len(types)} {name}, one for each value, not {len(attributes)}")
    blocks = []
    for i, (value, attribute) in enumerate(zip(types, attributes, strict=True)):
        type_ = tensor_type(value, f"value {i} of {name}")
        sharding = site.sharding_of(attribute, f"{name}[{i}]", len(type_.shape))
        blocks.append(local_type(type_, sharding, axes, f"{name}[{i}]"))
    return blocks


def local_type(type_: TensorType, sharding: Sharding, manual: Axes, name: str) -> TensorType:
    """Return the type of a block over the ``manual`` axes. Raises Illegal if a manual axis is behind another
    axis in a dim, or the size does not divide.
    """
    for dim, axes in enumerate(sharding.dims):
        inside = [_is_manual(axis, manual, name) for axis in axes]
        if inside != sorted(inside, reverse=True):
            raise Illegal(f"{name}: in dim {dim} the manual axes must come before the others")
        ways = prod(axis.size for axis, is_in in zip(axes, inside, strict=True) if is_in)
        if ways > 1:
            type_ = divided(type_, dim, ways)
    return type_


def _is_manual(axis: Axis, manual: Axes, name: str) -> bool:
    for m in manual:
        if m.name == axis.name and m.pre <= axis.pre and axis.pre * axis.size <= m.pre * m.size:
            return True
        if m.overlaps(axis):
            raise Illegal(f"{name}: axis {axis} is only partly manual: split it at {m}")
    return False


def manual(
    ins: Sequence[ir.Value],
    in_shardings: Sequence[Sharding],
    out_types: Sequence[TensorType],
    out_shardings: Sequence[Sharding],
    axes: Axes,
    codec: ShardingCodec,
    **at: Unpack[At],
) -> tuple[ir.Block, list[ir.Value]]:
    """Build a manual region. Return its body and its results.

    The body is an empty block, which the caller fills and ends with ``yield_values``. ``out_types`` are the
    results' global types.
    """
    context = at["loc"].context
    blocks = [
        write_type(local_type(tensor_type(v.type, f"operand {i}"), s, axes, f"in_shardings[{i}]"), context)
        for i, (v, s) in enumerate(zip(ins, in_shardings, strict=True))
    ]
    attributes = {
        "axes": codec.axes(axes),
        "in_shardings": codec.array([s.closed() for s in in_shardings]),
        "out_shardings": codec.array([s.closed() for s in out_shardings]),
    }
    results = [tuple_type([write_type(t, context) for t in out_types], context)] if out_types else []
    op = ir.Operation.create(ManualOp.OPERATION_NAME, results, pack(ins, **at), attributes, regions=1, **at)
    return empty_body(op, blocks), unpack(op.results[0] if results else None, **at)
