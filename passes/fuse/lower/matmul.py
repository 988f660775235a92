"""Lowerings of matrix products to contractions, which sum in at least f32.

Pointwise ops can be fused into a contraction's inputs and result. A product of a matrix that ops compute with
one vector is a sum of products instead, which fuses as any other reduction, so that the matrix need not be
written to memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize, hint
from shardc.options.kernels import MATMUL_FORMS
from shardc.passes.fuse.lower.reduction import converted
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

TARGETS = frozenset(("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm"))
FEW_TERMS = 32
"""Most terms of a sum for which a product of a matrix in memory with one vector is a sum in a kernel, too."""


def matmul_calls(matmuls: str) -> frozenset[str]:
    """Return the targets of matmuls that stay ATen calls: all for the form ``extern``, else none.

    Raises ValueError if ``matmuls`` is not one of MATMUL_FORMS.
    """
    if matmuls not in MATMUL_FORMS:
        raise ValueError(f"matmuls is {matmuls!r}; it must be one of {', '.join(MATMUL_FORMS)}")
    return TARGETS if matmuls == "extern" else frozenset()


def is_by_vector(target: str, operands: Sequence[Value]) -> bool:
    """Return whether a call, here of any target, is a product that becomes a sum of products.

    It multiplies two vectors, or a matrix by one vector: a matrix that ops compute, or that has short rows.
    Others in memory are better multiplied by a library; so is the result of another product. ``operands``:
    all tensors of the call.
    """
    if target not in TARGETS:
        return False
    x, y = operands[-2:]
    (m, k), n = x.type.shape[-2:], y.type.shape[-1]
    matrix = x if n == 1 else y if m == 1 else None
    return k == 1 or (matrix is not None and _suits_a_sum(matrix, k))


def _suits_a_sum(matrix: Value, terms: AnySize) -> bool:
    """Return whether ops other than a product compute ``matrix``, or a sum has few terms."""
    if hint(terms) <= FEW_TERMS:
        return True
    while matrix.view is not None:
        matrix = matrix.view.source
    return matrix.node is not None and not matrix.node.contracts


@lowers("aten.mv")
def matrix_by_vector(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    x, y = values
    (type_,) = results(call)
    if not type_.dtype.is_floating_point or not _suits_a_sum(x, x.type.shape[1]):
        raise NotLowered("multiplies a matrix in memory by a vector")
    made = _sum_of_products(b, x, b.seen(y, (x.type.shape[1], 1)), wide(type_.dtype))
    return [b.reshape(converted(b, made, type_.dtype), type_.shape)]


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
    if is_by_vector(call.target, (x, y)):
        return _sum_of_products(b, x, y, wide(type_.dtype))
    return b.contract(x, y, wide(type_.dtype))


def _sum_of_products(b: Builder, x: Value, y: Value, dtype: torch.dtype) -> Value:
    """Return the product of ``x`` [*batch, m, k] and ``y`` [*batch, k, n], of which one size is 1."""
    (*batch, m, k), n = x.type.shape, y.type.shape[-1]
    if k == 1:
        dim, shape = None, (*batch, m, n)
    elif n == 1:
        dim, shape, y = len(batch) + 1, (*batch, m, k), b.seen(y, (*batch, 1, k))
    else:
        dim, shape, x = len(batch), (*batch, k, n), b.seen(x, (*batch, k, 1))

    def multiply(s: Scalars, first: Scalar, second: Scalar) -> Scalar:
        return s.mul(s.cast(first, dtype), s.cast(second, dtype))

    made = b.point(multiply, [x, y], TensorType(shape, dtype), dtype=dtype)
    return made if dim is None else b.reduce("sum", made, [dim], dtype)
