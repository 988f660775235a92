"""Lowerings of matrix products to contractions, which sum in at least f32.

Pointwise ops can be fused into a contraction's inputs and result.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.options.kernels import MATMUL_FORMS
from shardc.passes.fuse.lower.reduction import converted
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

TARGETS = frozenset(("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm"))


def matmul_calls(matmuls: str) -> frozenset[str]:
    """Return the targets of matmuls that stay ATen calls: all for the form ``extern``, else none.

    Raises ValueError if ``matmuls`` is not one of MATMUL_FORMS.
    """
    if matmuls not in MATMUL_FORMS:
        raise ValueError(f"matmuls is {matmuls!r}; it must be one of {', '.join(MATMUL_FORMS)}")
    return TARGETS if matmuls == "extern" else frozenset()


@lowers("aten.mm", "aten.bmm")
def matmul(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    x, y = values
    return [converted(b, _product(b, call, x, y), results(call)[0].dtype)]


@lowers("aten.addmm", "aten.baddbmm")
def matmul_plus(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower ``beta * bias + alpha * (x @ y)``, rounded once. If ``beta`` is 0, the bias is not read.

    So NaNs in it do not reach the result, as in ATen.
    """
    bias, x, y = values
    (type_,) = results(call)
    alpha, beta = call["alpha"], call["beta"]
    product = _product(b, call, x, y)

    def compute(s: Scalars, total: Scalar, *added: Scalar) -> Scalar:
        total = total if alpha == 1 else s.mul(total, alpha)
        for term in added:
            term = s.cast(term, total.dtype)
            total = s.add(total, term if beta == 1 else s.mul(term, beta))
        return total

    return [b.point(compute, [product, bias] if beta != 0 else [product], type_, dtype=wide(type_.dtype))]


def _product(b: Builder, call: OpCall, x: Value, y: Value) -> Value:
    (type_,) = results(call)
    if not type_.dtype.is_floating_point:
        raise NotLowered(f"multiplies matrices of {type_.dtype}")
    return b.contract(x, y, wide(type_.dtype))
