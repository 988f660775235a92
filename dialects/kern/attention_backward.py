"""``kern.attention_backward``: the gradients of ``kern.attention`` in a kernel's body. Level 4."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.verifier import Op, Operand, Result, Site
from shardc.dialects.kern.attention_maps import check_attention
from shardc.dialects.kern.dialect import Kern


class AttentionBackwardOp(Op, dialect=Kern, name="attention_backward", traits=[ext.Pure]):
    """Computes dq, dk and dv of ``kern.attention`` from its ``out`` and ``lse`` and the gradient of out.

    Probabilities are recomputed as exp(score - lse). The indexing maps are those of grad_out, q, k, v, out,
    lse, mask (if there is one), dq, dk and dv. Attributes, and an optional ``index`` behind all tensors, are
    as in ``kern.attention``. dk and dv are sums over the query heads of a group.

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
