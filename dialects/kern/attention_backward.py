"""``kern.attention_backward``: the gradients of ``kern.attention`` in a kernel's body. Level 4."""

from collections.abc import Sequence
from typing import Any, Optional

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Result

from shardc.dialects.dist.verifier import verify
from shardc.dialects.kern.attention_maps import Attention, Shapes, check_attention, read_attention
from shardc.dialects.kern.dialect import Kern


class AttentionBackwardOp(Kern.Operation, name="attention_backward", traits=[ext.Pure]):
    """dq, dk and dv of ``kern.attention``, which gave ``out`` and ``lse``, from the gradient of out.

    The probabilities are computed again as exp(score - lse). Maps are those of grad_out, q, k, v, out, lse,
    mask (if there is one), dq, dk and dv; attributes are those of ``kern.attention``. dk and dv are sums over
    the query heads of a group.

    ``%dq, %dk, %dv = "kern.attention_backward"(%grad_out, %q, %k, %v, %out, %lse) {indexing_maps = [...],
        causal = true, q_offset = 0 : i64, scale = 0.125 : f64, unseen_lse = 0.0 : f64} : (...) -> (...)``
    """

    dq: Result[Any]
    dk: Result[Any]
    dv: Result[Any]
    grad_out: Operand[Any]
    q: Operand[Any]
    k: Operand[Any]
    v: Operand[Any]
    out: Operand[Any]
    lse: Operand[Any]
    indexing_maps: ir.ArrayAttr
    causal: ir.IntegerAttr
    q_offset: ir.IntegerAttr
    scale: ir.FloatAttr
    unseen_lse: ir.FloatAttr
    # The bindings read annotations when the class is made, and know this spelling of an optional operand.
    mask: Optional[Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        return verify(self, lambda site: check_attention(site, attention_backward_of))


AttentionBackwardOp.mask = property(lambda op: op.operands[6] if len(op.operands) > 6 else None)


def attention_backward_of(op: ir.Operation, shapes: Shapes | None = None) -> Attention:
    """What a ``kern.attention_backward`` says. Raises Illegal."""
    return read_attention(op, ["grad_out", "q", "k", "v", "out", "lse"], ["dq", "dk", "dv"], shapes)


def attention_backward(
    operands: Sequence[ir.Value],
    results: Sequence[ir.Type],
    attributes: dict[str, ir.Attribute],
    *,
    loc: ir.Location,
    ip: ir.InsertionPoint,
) -> list[ir.Value]:
    """dq, dk and dv; ``attributes`` as of :func:`attention_maps.attention_attributes`."""
    name = AttentionBackwardOp.OPERATION_NAME
    return list(ir.Operation.create(name, results, operands, attributes, loc=loc, ip=ip).results)
