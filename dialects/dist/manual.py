"""``dist.manual``: a region written for one device, inside a program on global shapes. Level 2."""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Region, Result

from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.build import unsegmented
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.dist.verifier import Illegal, Site, divided, tensor_type, verify
from shardc.dialects.dist.yield_op import expect_types, yielded


class ManualOp(Dist.Operation, name="manual", traits=[ir.IsIsolatedFromAboveTrait, ext.Pure]):
    """Runs its body on each device, on blocks of its operands: manual over ``axes``, global over all others.

    ``in_shardings`` say how the operands lie, ``out_shardings`` how the results do; the body's types are their global
    types with the manual axes divided out. In each dim the manual axes come before any others.

    ``%1 = "dist.manual"(%0) ({
    ^bb0(%block: !torch.vtensor<[2,8],f32>):
      "dist.yield"(%block) : (!torch.vtensor<[2,8],f32>) -> ()
    }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>],
        out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    ins: Sequence[Operand[Any]]
    outs: Sequence[Result[Any]]
    axes: ir.ArrayAttr
    in_shardings: ir.ArrayAttr
    out_shardings: ir.ArrayAttr
    body: Region

    def verify_invariants(self) -> bool:
        return verify(self, _check)

    def verify_region_invariants(self) -> bool:
        return verify(self, _check_body)


ManualOp.ins = unsegmented(slice(None))
ManualOp.outs = unsegmented(slice(None), results=True)


def _check(site: Site) -> None:
    axes = site.axes()
    _locals(site, site.op.operands, "in_shardings", "operand", axes)
    _locals(site, site.op.results, "out_shardings", "result", axes)


def _check_body(site: Site) -> None:
    axes, found = site.axes(), yielded(site)
    ins = _locals(site, site.op.operands, "in_shardings", "operand", axes)
    outs = _locals(site, site.op.results, "out_shardings", "result", axes)
    expect_types("body argument", ins, [a.type for a in site.op.regions[0].blocks[0].arguments])
    expect_types("yielded value", outs, found)


def _locals(site: Site, values: Sequence[ir.Value], name: str, what: str, axes: Axes) -> list[TensorType]:
    """The types of the values' blocks inside the body."""
    attributes = list(site.attribute(name, ir.ArrayAttr))
    if len(attributes) != len(values):
        raise Illegal(f"must have {len(values)} {name}, one for each {what}, not {len(attributes)}")
    types = []
    for i, (value, attribute) in enumerate(zip(values, attributes, strict=True)):
        type_ = tensor_type(value.type, f"{what} {i}")
        sharding = site.sharding_of(attribute, f"{name}[{i}]", len(type_.shape))
        types.append(local_type(type_, sharding, axes, f"{name}[{i}]"))
    return types


def local_type(type_: TensorType, sharding: Sharding, manual: Axes, name: str) -> TensorType:
    """The type of a block over the ``manual`` axes. Raises Illegal where they come after others or do not divide."""
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
            raise Illegal(f"{name}: axis {axis} is manual in part: cut it at {m}")
    return False


def manual(
    ins: Sequence[ir.Value],
    in_shardings: Sequence[Sharding],
    out_types: Sequence[TensorType],
    out_shardings: Sequence[Sharding],
    axes: Axes,
    codec: ShardingCodec,
    *,
    loc: ir.Location,
    ip: ir.InsertionPoint,
) -> ManualOp:
    """A manual op whose body is an empty block with its arguments; the caller fills it and ends it with a yield.

    ``out_types`` are the results' global types.
    """
    context = loc.context
    blocks = [
        write_type(local_type(tensor_type(v.type, f"operand {i}"), s, axes, f"in_shardings[{i}]"), context)
        for i, (v, s) in enumerate(zip(ins, in_shardings, strict=True))
    ]
    attributes = {
        "axes": codec.axes(axes),
        "in_shardings": codec.array([s.closed() for s in in_shardings]),
        "out_shardings": codec.array([s.closed() for s in out_shardings]),
    }
    results = [write_type(t, context) for t in out_types]
    op = ir.Operation.create(ManualOp.OPERATION_NAME, results, list(ins), attributes, regions=1, loc=loc, ip=ip)
    op.regions[0].blocks.append(*blocks, arg_locs=[loc] * len(blocks))
    return ManualOp(op) if not isinstance(op, ManualOp) else op
