"""``kern.scan``: sums, products or extrema of each row's elements so far. Level 4."""

from dataclasses import dataclass
from typing import Unpack

import torch
from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.build import At
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Op, Operand, Result, Site
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.types import check_dtype, read_builtin

KINDS = ("sum", "product", "max", "min")
DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32)


class ScanOp(Op, dialect=Kern, name="scan", traits=[ext.Pure]):
    """Combines each element of ``x`` with all elements before it along the last dim.

    ``kind``: "sum", "product", "max" or "min", where a NaN is the extremum. ``reverse`` (optional): each
    element is combined with those after it. ``x`` and ``out`` have one type, of f32, f64 or integers of 32 or
    64 bits; carried sums and products of floats are in f64.

    ``%out = "kern.scan"(%x) {kind = "sum", reverse} : (tensor<128x4000xf32>) -> tensor<128x4000xf32>``
    """

    out: Result
    x: Operand

    def check(self, site: Site) -> None:
        if len(site.op.results) != 1 or len(site.op.operands) != 1:
            raise LeftToMlir
        scan_of(site.op)


@dataclass(frozen=True)
class Scan:
    """An op as read. ``type``: type of ``x`` and ``out``."""

    type: TensorType
    kind: str
    reverse: bool


def scan_of(op: ir.Operation) -> Scan:
    """Read and check a ``kern.scan``. Raises Illegal."""
    x, out = op.operands[0].type, op.results[0].type
    type_ = read_builtin(x)
    if type_ is None or not type_.is_static or not type_.shape:
        raise Illegal(f"x is {x}; it must be a tensor of known sizes with at least one dim")
    if x != out:
        raise Illegal(f"out is {out}; it must have the type of x, {x}")
    check_dtype("x", type_.dtype, DTYPES)
    kind = ir.StringAttr(op.attributes["kind"]).value if "kind" in op.attributes else None
    if kind not in KINDS:
        raise Illegal(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    return Scan(type_, kind, "reverse" in op.attributes)


def scan(x: ir.Value, kind: str, reverse: bool, **at: Unpack[At]) -> ir.Value:
    """Build the op and return out."""
    context = at["loc"].context
    attributes: dict[str, ir.Attribute] = {"kind": ir.StringAttr.get(kind, context)}
    if reverse:
        attributes["reverse"] = ir.UnitAttr.get(context)
    return ir.Operation.create(ScanOp.OPERATION_NAME, [x.type], [x], attributes, **at).results[0]
