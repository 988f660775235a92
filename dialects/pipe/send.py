"""``pipe.send``: values for another rank of the pipeline. Level 3."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects.ext import Operand

from shardc.dialects.dist.build import i64, string
from shardc.dialects.dist.tuples import pack
from shardc.dialects.dist.verifier import Site, verify
from shardc.dialects.pipe.dialect import Pipe
from shardc.dialects.pipe.receive import check_message


class SendOp(Pipe.Operation, name="send"):
    """Starts sending a tuple of values to the rank ``to`` of the pipeline, and does not wait.

    The ``pipe.receive`` of the same ``tag`` there gets it. A tag names the action that reads the values, or
    the value.

    ``"pipe.send"(%0) {tag = "1F0", to = 1 : i64} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()``
    """

    values: Operand[Any]
    to: ir.IntegerAttr
    tag: ir.StringAttr

    def verify_invariants(self) -> bool:
        return verify(self, _check)


def _check(site: Site) -> None:
    check_message(site, "to", site.op.operands)


def send(values: Sequence[ir.Value], to: int, tag: str, *, loc: ir.Location, ip: ir.InsertionPoint) -> None:
    attributes = {"to": i64(to, loc.context), "tag": string(tag, loc.context)}
    ir.Operation.create(SendOp.OPERATION_NAME, [], pack(values, loc=loc, ip=ip), attributes, loc=loc, ip=ip)
