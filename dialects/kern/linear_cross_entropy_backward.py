"""``kern.linear_cross_entropy_backward``: the gradients of ``kern.linear_cross_entropy``. Level 4."""

from collections.abc import Mapping
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At
from shardc.dialects.dist.verifier import LeftToMlir, Op, Operand, Result, Site
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropy, read_linear_cross_entropy


class LinearCrossEntropyBackwardOp(Op, dialect=Kern, name="linear_cross_entropy_backward", traits=[ext.Pure]):
    """Computes drows, dweight and dbias of ``kern.linear_cross_entropy``.

    ``scale * grad`` is the gradient of its logp, and ``spread`` (optional) that of its total.

    With ``p[m, n] = exp(logits[m, n] - lse[m])`` and ``dlogits[m, n] = scale * grad[m] * (n == index[m]) +
    spread[m] - sums[m] * p[m, n]``, rounded to the dtype of rows, they are ``dlogits weight``, ``dlogits^T
    rows`` and the sum of dlogits over the rows. ``sums`` are the sums of each row's gradients over all
    classes: ``scale * grad + classes * spread``. If the weight has only a part of the classes, ``sums`` is an
    operand, and ``lse`` is that of all classes. Logits are recomputed from rows, weight and ``bias``; only a
    part of them, and of dlogits, is in memory at a time. An index that names no class equals no n. If the
    weight was gathered again for its gradient, drows is computed with ``weight_again``.

    ``%drows, %dweight, %dbias = "kern.linear_cross_entropy_backward"(%grad, %rows, %weight, %index, %lse)
    {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>, scale = -1.0 : f64}
    : (tensor<64xf32>, tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>, tensor<64xf32>)
    -> (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<1000xbf16>)``
    """

    drows: Result
    dweight: Result
    dbias: Result
    grad: Operand
    rows: Operand
    weight: Operand
    index: Operand
    lse: Operand
    scale: ir.FloatAttr
    weight_again: Operand | None = None
    bias: Operand | None = None
    spread: Operand | None = None
    sums: Operand | None = None

    def check(self, site: Site) -> None:
        if not site.has("scale") or not site.has(_SEGMENTS) or len(site.op.results) != 3:
            raise LeftToMlir
        if len(given_roles(site.op)) != len(site.op.operands):
            raise LeftToMlir
        linear_cross_entropy_backward_of(site.op)


_ROLES = ("grad", "rows", "weight", "index", "lse", "weight_again", "bias", "spread", "sums")
_SEGMENTS = "operandSegmentSizes"


def linear_cross_entropy_backward_of(op: ir.Operation) -> LinearCrossEntropy:
    """Read and check a ``kern.linear_cross_entropy_backward``, except for its scale. Raises Illegal."""
    return read_linear_cross_entropy(op, (*given_roles(op), "drows", "dweight", "dbias"))


def given_roles(op: ir.Operation) -> tuple[str, ...]:
    """Return the roles of the operands of a ``kern.linear_cross_entropy_backward``."""
    sizes = ir.DenseI32ArrayAttr(op.attributes[_SEGMENTS])
    return tuple(role for role, size in zip(_ROLES, sizes, strict=True) if size)


def linear_cross_entropy_backward(
    operands: Mapping[str, ir.Value], scale: float, **at: Unpack[At]
) -> list[ir.Value]:
    """Build the op on operands by role. Return drows, dweight and dbias."""
    rows, weight = operands["rows"].type, ir.RankedTensorType(operands["weight"].type)
    bias = ir.RankedTensorType.get([weight.shape[0]], weight.element_type, loc=at["loc"])
    attributes = {
        "scale": ir.FloatAttr.get(ir.F64Type.get(at["loc"].context), scale, at["loc"]),
        _SEGMENTS: ir.DenseI32ArrayAttr.get([int(role in operands) for role in _ROLES], at["loc"].context),
    }
    given = [operands[role] for role in _ROLES if role in operands]
    name = LinearCrossEntropyBackwardOp.OPERATION_NAME
    return list(ir.Operation.create(name, [rows, weight, bias], given, attributes, **at).results)
