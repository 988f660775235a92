"""``kern.linear_cross_entropy``: a linear layer and the log-softmax at one class a row. Level 4."""

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
"""The dims of each tensor: m rows, of k elements each, and n classes."""
MADE = ("logp", "lse", "wrong", "total", "top")
"""The results."""


class LinearCrossEntropyOp(Op, dialect=Kern, name="linear_cross_entropy", traits=[ext.Pure]):
    """``logp[m] = log_softmax(rows weight^T + bias)[m, index[m]]``: the cross entropy of each row is its
    negative.

    ``rows`` [m, k], ``weight`` [n, k] and ``bias`` [n] (optional) are of one of f16, bf16 and f32, ``index``
    [m] of i64 or i32. Logits, ``logp``, ``lse``, the logarithm of each row's sum of exponentials, ``total``,
    the sum of a row's log_softmax over all classes (label smoothing reads it), and ``top``, a row's largest
    logit (devices that have a part of the classes each combine it), are f32; the logits are in no memory.
    ``wrong`` is the largest index that names no class, or the smallest si64: its row's logp is -lse.

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
    """Either op: ``rows`` of ``size`` elements, ``classes``, and its tensors by role."""

    rows: int
    classes: int
    size: int
    tensors: dict[str, TensorType]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of rows and weight."""
        return self.tensors["rows"].dtype


def linear_cross_entropy_of(op: ir.Operation) -> LinearCrossEntropy:
    """What a ``kern.linear_cross_entropy`` says. Raises Illegal."""
    given = ("rows", "weight", "index", "bias")[: len(op.operands)]
    return read_linear_cross_entropy(op, (*given, *MADE))


def read_linear_cross_entropy(op: ir.Operation, roles: Sequence[str]) -> LinearCrossEntropy:
    """What an op says whose operands and then results play ``roles``. Raises Illegal."""
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
    """What MADE names of rows, weight, index and maybe bias."""
    context = at["loc"].context
    rows = ir.RankedTensorType(operands[0].type).shape[0]
    row = ir.RankedTensorType.get([rows], ir.F32Type.get(context), loc=at["loc"])
    wrong = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64, context), loc=at["loc"])
    name = LinearCrossEntropyOp.OPERATION_NAME
    return list(ir.Operation.create(name, [row, row, wrong, row, row], list(operands), **at).results)
