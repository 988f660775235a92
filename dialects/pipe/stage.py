"""``pipe.stage``: what one stage does for one micro-batch in one kind of action. Level 3."""

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects.ext import Region

from shardc.dialects.dist.build import At, attributes, empty_body
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.dist.verifier import Illegal, RegionOp, Site, tensor_type
from shardc.dialects.pipe.action import COLLECTIVE_KINDS, KINDS, OPTIMIZER
from shardc.dialects.pipe.dialect import Pipe
from shardc.dialects.pipe.yield_op import YieldOp


class StageOp(RegionOp, dialect=Pipe, name="stage", traits=[ir.IsIsolatedFromAboveTrait]):
    """The forward (``kind``
    "F"), backward ("B"), input gradient ("I") or weight gradient ("W") of the stage ``index``, or its optimizer ("O")
    where a schedule has ``updates``; or what is done over the other axes of the mesh to its parameters
    ("UNSHARD") or gradients ("REDUCE_GRAD") once a step.

    The body's arguments are the values that it reads: of other stages, saved by an earlier action of its own,
    captured (the same for all micro-batches), and sums so far. It yields what others read, and the sums with
    its terms in them. ``dist.slice`` and ``dist.offset`` over the mesh's time axis give a micro-batch its
    part. An optimizer reads state, and the sums of a group of micro-batches; it yields the new state, and
    what forward and backward read that is made of it. ``slice``: the number of the slice of tokens that it is
    for, if there are several and it is not the first. ``sums``: how many of the last arguments, and of what it
    yields last, are sums so far; the others are of one micro-batch, or hold for all.

    ``"pipe.stage"() ({
    ^bb0(%x: !torch.vtensor<[4,8],f32>):
      %0 = torch.aten.relu %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
      %1 = torch.prim.TupleConstruct %0 : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
      "pipe.yield"(%1) : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
    }) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()``
    """  # noqa: E501

    sym_name: ir.StringAttr
    index: ir.IntegerAttr
    kind: ir.StringAttr
    body: Region

    def check(self, site: Site) -> None:
        index, kind = site.integer("index", 0), site.attribute("kind", ir.StringAttr).value
        known = (*KINDS, OPTIMIZER, *COLLECTIVE_KINDS)
        if kind not in known:
            raise Illegal(f"kind must be one of {', '.join(known)}, not {kind!r}")
        number = site.integer("slice", 1) if site.has("slice") else 0
        if site.has("sums"):
            site.integer("sums", 0)
        name = site.attribute("sym_name", ir.StringAttr).value
        if name != stage_name(index, kind, number):
            raise Illegal(f"must be named {stage_name(index, kind, number)!r}, not {name!r}")

    def check_body(self, site: Site) -> None:
        block = site.body()
        for number, argument in enumerate(block.arguments):
            tensor_type(argument.type, f"body argument {number}")
        last = list(block.operations)[-1].operation
        if last.name != YieldOp.OPERATION_NAME:
            raise Illegal(f"must end its body with pipe.yield, not {last.name}")
        sums = site.op.attributes["sums"].value if site.has("sums") else 0
        reads, makes = map(len, signature(site.op))
        if sums > min(reads, makes):
            raise Illegal(f"has {reads} arguments and {makes} results, of which {sums} cannot be sums")


def stage_name(index: int, kind: str, number: int = 0) -> str:
    """The symbol of a stage's body for one kind of action, and slice ``number`` of the tokens."""
    return f"stage_{index}_{kind}" + (f"_{number}" if number else "")


def signature(stage: ir.Operation) -> tuple[list[ir.Type], list[ir.Type]]:
    """The types of what a stage reads and makes."""
    block = stage.regions[0].blocks[0]
    yielded = list(list(block.operations)[-1].operation.operands)
    return [a.type for a in block.arguments], (element_types(yielded[0].type) or []) if yielded else []


def stage(
    index: int,
    kind: str,
    arguments: Sequence[ir.Type],
    number: int = 0,
    sums: int | None = None,
    **at: Unpack[At],
) -> ir.Block:
    """Makes a stage; its body is an empty block, for the caller to fill and end with ``yield_values``."""
    name, context = stage_name(index, kind, number), at["loc"].context
    given = attributes(context, sym_name=name, index=index, kind=kind, slice=number or None, sums=sums)
    op = ir.Operation.create(StageOp.OPERATION_NAME, [], [], given, regions=1, **at)
    return empty_body(op, arguments)
