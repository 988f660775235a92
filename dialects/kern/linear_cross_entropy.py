"""``kern.linear_cross_entropy``: a linear layer, and the log-softmax at one class for each row. Level 4."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import torch
from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.build import At
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Op, Operand, Result, Site
from shardc.dialects.kern.attention_maps import FLOATS
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.types import agree, check_dtype, read_builtin

SHAPES = {
    **dict.fromkeys(("grad", "index", "lse", "logp", "total", "spread", "top", "sums"), "m"),
    **dict.fromkeys(("rows", "drows"), "mk"),
    **dict.fromkeys(("weight", "dweight", "weight_again"), "nk"),
    **dict.fromkeys(("bias", "dbias"), "n"),
    "wrong": "",
}
"""Dims of each tensor: m rows of k elements, and n classes."""
MADE = ("logp", "lse", "wrong", "total", "top")
"""Names of the results."""


class LinearCrossEntropyOp(Op, dialect=Kern, name="linear_cross_entropy", traits=[ext.Pure]):
    """Computes ``logp[m] = log_softmax(rows weight^T + bias)[m, index[m]]``, the negative cross entropy of
    each row.

    ``rows`` [m, k], ``weight`` [n, k] and ``bias`` [n] (optional) have one dtype of f16, bf16 and f32;
    ``index`` [m] is i64 or i32. The f32 results are ``logp`` and, for each row: ``lse``, the log-sum-exp;
    ``total``, the sum of log_softmax over all classes, which label smoothing reads; ``top``, the largest
    logit, which devices combine if each has a part of the classes. Logits are f32 and never stored. ``wrong``
    is the largest index that names no class, or the smallest si64 if there is none. The logp of a row with
    such an index is -lse.

    ``%logp, %lse, %wrong, %total, %top = "kern.linear_cross_entropy"(%rows, %weight, %index)
    : (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>)
    -> (tensor<64xf32>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)``
    """

    logp: Result
    lse: Result
    wrong: Result
    total: Result
    top: Result
    rows: Operand
    weight: Operand
    index: Operand
    bias: Operand | None = None

    def check(self, site: Site) -> None:
        if len(site.op.results) != len(MADE) or len(site.op.operands) not in (3, 4):
            raise LeftToMlir
        linear_cross_entropy_of(site.op)


@dataclass(frozen=True)
class LinearCrossEntropy:
    """Forward or backward op as read: ``rows`` of ``size`` elements, ``classes``, and tensors by role."""

    rows: int
    classes: int
    size: int
    tensors: dict[str, TensorType]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of rows and weight."""
        return self.tensors["rows"].dtype


def linear_cross_entropy_of(op: ir.Operation) -> LinearCrossEntropy:
    """Read and check a ``kern.linear_cross_entropy``. Raises Illegal."""
    given = ("rows", "weight", "index", "bias")[: len(op.operands)]
    return read_linear_cross_entropy(op, (*given, *MADE))


def read_linear_cross_entropy(op: ir.Operation, roles: Sequence[str]) -> LinearCrossEntropy:
    """Read an op; ``roles`` names its operands, then its results. Raises Illegal."""
    tensors: dict[str, TensorType] = {}
    sizes: dict[str, int] = {}
    for role, value in zip(roles, [*op.operands, *op.results], strict=True):
        type_ = read_builtin(value.type)
        if type_ is None or len(type_.shape) != len(SHAPES[role]) or not type_.is_static:
            dims = ", ".join(SHAPES[role])
            raise Illegal(f"{role} is {value.type}; it must be a tensor [{dims}] of known sizes")
        for dim, size in zip(SHAPES[role], type_.shape, strict=True):
            agree(sizes, role, dim, size)
        tensors[role] = type_
    for role, type_ in tensors.items():
        check_dtype(role, type_.dtype, _dtypes(role, tensors["rows"].dtype))
    return LinearCrossEntropy(sizes["m"], sizes["n"], sizes["k"], tensors)


def _dtypes(role: str, factor: torch.dtype) -> tuple[torch.dtype, ...]:
    if role == "rows":
        return FLOATS
    if role in ("weight", "weight_again", "bias", "drows", "dweight", "dbias"):
        return (factor,)
    if role == "index":
        return (torch.int64, torch.int32)
    return (torch.int64,) if role == "wrong" else (torch.float32,)


def linear_cross_entropy(operands: Sequence[ir.Value], **at: Unpack[At]) -> list[ir.Value]:
    """Build the op on rows, weight, index and optionally bias. Return the results, in order of MADE."""
    context = at["loc"].context
    rows = ir.RankedTensorType(operands[0].type).shape[0]
    row = ir.RankedTensorType.get([rows], ir.F32Type.get(context), loc=at["loc"])
    wrong = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64, context), loc=at["loc"])
    name = LinearCrossEntropyOp.OPERATION_NAME
    return list(ir.Operation.create(name, [row, row, wrong, row, row], list(operands), **at).results)
