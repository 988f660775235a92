"""``kern.attention_backward``: the gradients of ``kern.attention`` in a kernel's body. Level 4."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.verifier import Op, Operand, Result, Site
from shardc.dialects.kern.attention_maps import check_attention
from shardc.dialects.kern.dialect import Kern


class AttentionBackwardOp(Op, dialect=Kern, name="attention_backward", traits=[ext.Pure]):
    """dq, dk and dv of ``kern.attention``, which gave ``out`` and ``lse``, from the gradient of out.

    The probabilities are computed again as exp(score - lse). Maps are those of grad_out, q, k, v, out, lse,
    mask (if there is one), dq, dk and dv; attributes are those of ``kern.attention``, as is an ``index``
    behind all tensors. dk and dv are sums over the query heads of a group.

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
    more: Sequence[Operand]
    indexing_maps: ir.ArrayAttr
    causal: ir.IntegerAttr
    q_offset: ir.IntegerAttr
    scale: ir.FloatAttr
    unseen_lse: ir.FloatAttr

    def check(self, site: Site) -> None:
        check_attention(site)
