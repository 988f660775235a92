"""``kern.attention``: scaled dot-product attention in a kernel's body. Level 4."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.verifier import Op, Operand, Result, Site
from shardc.dialects.kern.attention_maps import check_attention
from shardc.dialects.kern.dialect import Kern


class AttentionOp(Op, dialect=Kern, name="attention", traits=[ext.Pure]):
    """Computes ``out = softmax(q k^T * scale + mask) v`` and ``lse``, each row's log-sum-exp, in f32.

    The indexing maps take ``(b, h, m, n, d, e)`` to the dims of q, k, v, mask (if there is one), out and lse:
    see ``attention_maps.py``. A floating mask is added to the scores; in a bool mask (i8), 0 hides a score.
    ``causal`` hides keys n > m + ``q_offset``. An ``index`` operand behind all tensors is added to
    ``q_offset``: the position of a rank's rows, known at run time. A row whose keys are all hidden has out 0
    and lse ``unseen_lse``. Sums are in f32.

    ``%out, %lse = "kern.attention"(%q, %k, %v) {indexing_maps = [
        affine_map<(b, h, m, n, d, e) -> (b, m, h, d)>, affine_map<(b, h, m, n, d, e) -> (b, n, h floordiv 4,
        d)>, affine_map<(b, h, m, n, d, e) -> (b, n, h floordiv 4, e)>, affine_map<(b, h, m, n, d, e) -> (b,
        m, h, e)>, affine_map<(b, h, m, n, d, e) -> (b, h, m)>],
      causal = true, q_offset = 0 : i64, scale = 0.125 : f64, unseen_lse = 0xFFF0000000000000 : f64}
    : (tensor<2x512x8x64xf32>, tensor<2x512x2x64xf32>, tensor<2x512x2x64xf32>)
    -> (tensor<2x512x8x64xf32>, tensor<2x8x512xf32>)``
    """

    out: Result
    lse: Result
    q: Operand
    k: Operand
    v: Operand
    more: Sequence[Operand]
    indexing_maps: ir.ArrayAttr
    causal: ir.IntegerAttr
    q_offset: ir.IntegerAttr
    scale: ir.FloatAttr
    unseen_lse: ir.FloatAttr

    def check(self, site: Site) -> None:
        check_attention(site)
