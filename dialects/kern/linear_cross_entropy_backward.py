"""``kern.linear_cross_entropy_backward``: the gradients of ``kern.linear_cross_entropy``. Level 4."""

from collections.abc import Mapping
from typing import Any, Optional

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Result

from shardc.dialects.dist.verifier import LeftToMlir, Site, verify
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropy, read_linear_cross_entropy


class LinearCrossEntropyBackwardOp(Kern.Operation, name="linear_cross_entropy_backward", traits=[ext.Pure]):
    """drows, dweight and dbias of ``kern.linear_cross_entropy``, from ``scale * grad``, the gradient of its
    logp, and ``spread`` (optional), that of its total.

    With ``p[m, n] = exp(logits[m, n] - lse[m])`` and ``dlogits[m, n] = scale * grad[m] * (n == index[m]) +
    spread[m] - sums[m] * p[m, n]``, rounded to the dtype of rows, they are ``dlogits weight``,
    ``dlogits^T rows`` and the sum of dlogits over the rows. ``sums`` are those of a row's gradients over all
    classes: ``scale * grad + classes * spread``, unless the weight has a part of the classes alone; then they
    are an operand, and ``lse`` is that of all classes. Logits are computed again from rows, weight and
    ``bias``; only a part of them, and of dlogits, is in memory at a time. An index that names no class is
    equal to no n. Where the weight was gathered again for its gradient, drows is made with ``weight_again``.

    ``%drows, %dweight, %dbias = "kern.linear_cross_entropy_backward"(%grad, %rows, %weight, %index, %lse)
    {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>, scale = -1.0 : f64}
    : (tensor<64xf32>, tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>, tensor<64xf32>)
    -> (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<1000xbf16>)``
    """

    drows: Result[Any]
    dweight: Result[Any]
    dbias: Result[Any]
    grad: Operand[Any]
    rows: Operand[Any]
    weight: Operand[Any]
    index: Operand[Any]
    lse: Operand[Any]
    scale: ir.FloatAttr
    # The bindings read annotations when the class is made, and know this spelling of an optional operand.
    weight_again: Optional[Operand[Any]] = None  # noqa: UP045
    bias: Optional[Operand[Any]] = None  # noqa: UP045
    spread: Optional[Operand[Any]] = None  # noqa: UP045
    sums: Optional[Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        return verify(self, _check)


_ROLES = ("grad", "rows", "weight", "index", "lse", "weight_again", "bias", "spread", "sums")
_SEGMENTS = "operandSegmentSizes"


def _check(site: Site) -> None:
    if not site.has("scale") or not site.has(_SEGMENTS) or len(site.op.results) != 3:
        raise LeftToMlir
    if len(given_roles(site.op)) != len(site.op.operands):
        raise LeftToMlir
    linear_cross_entropy_backward_of(site.op)


def linear_cross_entropy_backward_of(op: ir.Operation) -> LinearCrossEntropy:
    """What a ``kern.linear_cross_entropy_backward`` says, but its scale. Raises Illegal."""
    return read_linear_cross_entropy(op, (*given_roles(op), "drows", "dweight", "dbias"))


def given_roles(op: ir.Operation) -> tuple[str, ...]:
    """What the operands of a ``kern.linear_cross_entropy_backward`` are."""
    sizes = ir.DenseI32ArrayAttr(op.attributes[_SEGMENTS])
    return tuple(role for role, size in zip(_ROLES, sizes, strict=True) if size)


def linear_cross_entropy_backward(
    operands: Mapping[str, ir.Value], scale: float, *, loc: ir.Location, ip: ir.InsertionPoint
) -> list[ir.Value]:
    """drows, dweight and dbias of the operands by their names."""
    rows, weight = operands["rows"].type, ir.RankedTensorType(operands["weight"].type)
    bias = ir.RankedTensorType.get([weight.shape[0]], weight.element_type, loc=loc)
    attributes = {
        "scale": ir.FloatAttr.get(ir.F64Type.get(loc.context), scale, loc),
        _SEGMENTS: ir.DenseI32ArrayAttr.get([int(role in operands) for role in _ROLES], loc.context),
    }
    given = [operands[role] for role in _ROLES if role in operands]
    name = LinearCrossEntropyBackwardOp.OPERATION_NAME
    return list(ir.Operation.create(name, [rows, weight, bias], given, attributes, loc=loc, ip=ip).results)
