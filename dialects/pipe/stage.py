"""``pipe.stage``: the computation of one stage for one micro-batch and one kind of action. Level 3."""

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
    """The computation of stage ``index`` for one micro-batch, in one kind of action.

    ``kind`` is forward ("F"), backward ("B"), input gradient ("I") or weight gradient ("W"); the optimizer
    ("O") in a schedule with ``updates``; or, once a step, collectives over the other axes of the mesh: of
    its parameters ("UNSHARD") or gradients ("REDUCE_GRAD").

    The body's arguments are the values that it reads: results of other stages, values saved by an earlier
    action of this stage, captured values (the same for all micro-batches), and running sums. It yields the
    values that others read, and the sums with its terms added. ``dist.slice`` and ``dist.offset`` over the
    mesh's time axis select a micro-batch's part. An optimizer reads state, and the sums of a group of
    micro-batches; it yields the new state, and values derived from it that forward and backward read.
    ``slice`` is the number of the slice of tokens, unless it is 0. ``sums`` says how many of the last
    arguments, and of the last yielded values, are running sums.

    ``"pipe.stage"() ({
    ^bb0(%x: !torch.vtensor<[4,8],f32>):
      %0 = torch.aten.relu %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
      %1 = torch.prim.TupleConstruct %0 : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
      "pipe.yield"(%1) : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
    }) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()``
    """

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
    """Return the symbol of a stage's body for a kind of action and slice ``number`` of the tokens."""
    return f"stage_{index}_{kind}" + (f"_{number}" if number else "")


def signature(stage: ir.Operation) -> tuple[list[ir.Type], list[ir.Type]]:
    """Return the types of the values that a stage reads, and of those that it yields."""
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
    """Build a stage and return its body, an empty block that the caller fills and ends with
    ``yield_values``.
    """
    name, context = stage_name(index, kind, number), at["loc"].context
    given = attributes(context, sym_name=name, index=index, kind=kind, slice=number or None, sums=sums)
    op = ir.Operation.create(StageOp.OPERATION_NAME, [], [], given, regions=1, **at)
    return empty_body(op, arguments)
