"""``pipe.send``: sends values to another rank of the pipeline. Level 3."""

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.dist.build import At, attributes
from shardc.dialects.dist.tuples import pack
from shardc.dialects.dist.verifier import Op, Operand, Site
from shardc.dialects.pipe.dialect import Pipe
from shardc.dialects.pipe.receive import check_message


class SendOp(Op, dialect=Pipe, name="send"):
    """Starts sending a tuple of values to the rank ``to`` of the pipeline, and does not wait.

    The ``pipe.receive`` with the same ``tag`` on that rank receives it. A tag names the action that reads the
    values, or the value.

    ``"pipe.send"(%0) {tag = "1F0", to = 1 : i64} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()``
    """

    values: Operand
    to: ir.IntegerAttr
    tag: ir.StringAttr

    def check(self, site: Site) -> None:
        check_message(site, "to", site.op.operands)


def send(values: Sequence[ir.Value], to: int, tag: str, **at: Unpack[At]) -> None:
    said = attributes(at["loc"].context, to=to, tag=tag)
    ir.Operation.create(SendOp.OPERATION_NAME, [], pack(values, **at), said, **at)
