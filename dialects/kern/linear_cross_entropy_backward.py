"""``kern.linear_cross_entropy_backward``: the gradients of ``kern.linear_cross_entropy``. Level 4."""

from collections.abc import Sequence
from typing import Any, Optional

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Result

from shardc.dialects.dist.verifier import LeftToMlir, Site, verify
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropy, read_linear_cross_entropy


class LinearCrossEntropyBackwardOp(Kern.Operation, name="linear_cross_entropy_backward", traits=[ext.Pure]):
    """drows and dweight of ``kern.linear_cross_entropy``, from ``scale * grad``, the gradient of its logp.

    With ``dlogits[m, n] = scale * grad[m] * ((n == index[m]) - exp(logits[m, n] - lse[m]))``, rounded to the dtype of
    rows, they are ``dlogits weight`` and ``dlogits^T rows``. Logits are computed again from rows and weight; only a
    part of them, and of dlogits, is in memory at a time. An index that names no class is equal to no n. Where the
    weight was gathered again for its gradient, drows is made with ``weight_again``.

    ``%drows, %dweight = "kern.linear_cross_entropy_backward"(%grad, %rows, %weight, %index, %lse)
    {scale = -1.0 : f64} : (tensor<64xf32>, tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>, tensor<64xf32>)
    -> (tensor<64x32xbf16>, tensor<1000x32xbf16>)``
    """

    drows: Result[Any]
    dweight: Result[Any]
    grad: Operand[Any]
    rows: Operand[Any]
    weight: Operand[Any]
    index: Operand[Any]
    lse: Operand[Any]
    scale: ir.FloatAttr
    # The bindings read annotations when the class is made, and know this spelling of an optional operand.
    weight_again: Optional[Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        return verify(self, _check)


LinearCrossEntropyBackwardOp.weight_again = property(lambda op: op.operands[5] if len(op.operands) > 5 else None)


def _check(site: Site) -> None:
    if not site.has("scale") or len(site.op.results) != 2 or len(site.op.operands) not in (5, 6):
        raise LeftToMlir
    linear_cross_entropy_backward_of(site.op)


def linear_cross_entropy_backward_of(op: ir.Operation) -> LinearCrossEntropy:
    """What a ``kern.linear_cross_entropy_backward`` says, but its scale. Raises Illegal."""
    return read_linear_cross_entropy(op, (*given_roles(op), "drows", "dweight"))


def given_roles(op: ir.Operation) -> tuple[str, ...]:
    """What the operands of a ``kern.linear_cross_entropy_backward`` are."""
    return ("grad", "rows", "weight", "index", "lse", "weight_again")[: len(op.operands)]


def linear_cross_entropy_backward(
    operands: Sequence[ir.Value], scale: float, *, loc: ir.Location, ip: ir.InsertionPoint
) -> list[ir.Value]:
    """drows and dweight of grad, rows, weight, index, lse and maybe weight_again."""
    types = [operands[1].type, operands[2].type]
    attributes = {"scale": ir.FloatAttr.get(ir.F64Type.get(loc.context), scale, loc)}
    name = LinearCrossEntropyBackwardOp.OPERATION_NAME
    return list(ir.Operation.create(name, types, list(operands), attributes, loc=loc, ip=ip).results)
