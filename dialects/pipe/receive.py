"""``pipe.receive``: receives values from another rank of the pipeline. Level 3."""

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.dist.build import At, attributes
from shardc.dialects.dist.tuples import element_types, tuple_type, unpack
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Op, Result, Site
from shardc.dialects.pipe.dialect import Pipe


class ReceiveOp(Op, dialect=Pipe, name="receive"):
    """Waits for the tuple of values that the rank ``source`` of the pipeline sends under ``tag``.

    ``%0 = "pipe.receive"() {source = 0 : i64, tag = "1F0"} : () -> !torch.tuple<vtensor<[4,8],f32>>``
    """

    source: ir.IntegerAttr
    tag: ir.StringAttr
    values: Result

    def check(self, site: Site) -> None:
        check_message(site, "source", site.op.results)


def check_message(site: Site, peer: str, values: Sequence[ir.Value]) -> None:
    """Check the parts that sends and receives share: a rank, a tag, a tuple of tensors. Raises Illegal."""
    site.integer(peer, 0)
    if not site.attribute("tag", ir.StringAttr).value:
        raise Illegal("needs a tag that is not empty")
    if not len(values):
        raise LeftToMlir
    if element_types(values[0].type) is None:
        raise Illegal(f"is about a tuple of values (torch.prim.TupleConstruct), not {values[0].type}")


def receive(types: Sequence[ir.Type], source: int, tag: str, **at: Unpack[At]) -> list[ir.Value]:
    context = at["loc"].context
    made, said = [tuple_type(types, context)], attributes(context, source=source, tag=tag)
    return unpack(ir.Operation.create(ReceiveOp.OPERATION_NAME, made, [], said, **at).result, **at)
