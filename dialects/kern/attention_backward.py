"""``kern.attention_backward``: the gradients of ``kern.attention`` in a kernel's body. Level 4."""

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At
from shardc.dialects.dist.verifier import Op, Operand, Result, Site
from shardc.dialects.kern.attention_maps import Attention, Shapes, check_attention, read_attention
from shardc.dialects.kern.dialect import Kern


class AttentionBackwardOp(Op, dialect=Kern, name="attention_backward", traits=[ext.Pure]):
    """dq, dk and dv of ``kern.attention``, which gave ``out`` and ``lse``, from the gradient of out.

    The probabilities are computed again as exp(score - lse). Maps are those of grad_out, q, k, v, out, lse,
    mask (if there is one), dq, dk and dv; attributes are those of ``kern.attention``. dk and dv are sums over
    the query heads of a group.

    ``%dq, %dk, %dv = "kern.attention_backward"(%grad_out, %q, %k, %v, %out, %lse) {indexing_maps = [...],
        causal = true, q_offset = 0 : i64, scale = 0.125 : f64, unseen_lse = 0.0 : f64} : (...) -> (...)``
    """

    dq: Result
    dk: Result
    dv: Result
    grad_out: Operand
    q: Operand
    k: Operand
    v: Operand
    out: Operand
    lse: Operand
    indexing_maps: ir.ArrayAttr
    causal: ir.IntegerAttr
    q_offset: ir.IntegerAttr
    scale: ir.FloatAttr
    unseen_lse: ir.FloatAttr
    mask: Operand | None = None

    def check(self, site: Site) -> None:
        check_attention(site, attention_backward_of)


def attention_backward_of(op: ir.Operation, shapes: Shapes | None = None) -> Attention:
    """What a ``kern.attention_backward`` says. Raises Illegal."""
    return read_attention(op, ["grad_out", "q", "k", "v", "out", "lse"], ["dq", "dk", "dv"], shapes)


def attention_backward(
    operands: Sequence[ir.Value],
    results: Sequence[ir.Type],
    attributes: dict[str, ir.Attribute],
    **at: Unpack[At],
) -> list[ir.Value]:
    """dq, dk and dv; ``attributes`` as of :func:`attention_maps.attention_attributes`."""
    name = AttentionBackwardOp.OPERATION_NAME
    return list(ir.Operation.create(name, results, operands, attributes, **at).results)
