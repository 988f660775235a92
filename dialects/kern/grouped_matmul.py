"""``kern.grouped_matmul``: matrix products of groups whose sizes are known at run time. Level 4."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
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

TURNED = {"left": "left_turned", "right": "right_turned"}
"""Attribute that says that an operand's last two dims are transposed in memory."""

SHAPES = {
    (2, 3): ("mk", "gkn", "mn", "m"),
    (3, 2): ("gmk", "kn", "mn", "n"),
    (2, 2): ("mk", "kn", "gmn", "k"),
}
"""Ranks of left and right -> the dims of left, right and out, and the dim that the groups share."""


class GroupedMatmulOp(Op, dialect=Kern, name="grouped_matmul", traits=[ext.Pure]):
    """Computes a matrix product for each group. The groups share one dim: group g has ``ends[g-1] ..
    ends[g]``.

    With ``left`` [m, k] and ``right`` [g, k, n] the groups share m: each row is multiplied by the matrix of
    its group. With ``left`` [g, m, k] and ``right`` [k, n] they share n. In both cases ``out`` [m, n] is 0
    behind the last end. With ``left`` [m, k] and ``right`` [k, n] they share k: ``out`` [g, m, n] has a
    product for each group, which is 0 for an empty group. ``ends`` [g] is i32, in ascending order. The other
    tensors have one dtype of f16, bf16 and f32; sums are in f32.

    ``left_turned``, ``right_turned`` (optional): the last two dims of the operand are transposed in memory.

    ``%out = "kern.grouped_matmul"(%rows, %matrices, %ends) {right_turned}
    : (tensor<64x32xbf16>, tensor<8x48x32xbf16>, tensor<8xi32>) -> tensor<64x48xbf16>``
    """

    out: Result
    left: Operand
    right: Operand
    ends: Operand

    def check(self, site: Site) -> None:
        if len(site.op.results) != 1 or len(site.op.operands) != 3:
            raise LeftToMlir
        grouped_matmul_of(site.op)


@dataclass(frozen=True)
class GroupedMatmul:
    """An op as read: ``sizes`` by dim (m, n, k, g), the ``shared`` dim, and each tensor's dims in memory."""

    sizes: dict[str, int]
    shared: str
    left: str
    right: str
    out: str
    dtype: torch.dtype

    def numel(self, dims: str) -> int:
        return prod(self.sizes[dim] for dim in dims)


def grouped_matmul_of(op: ir.Operation) -> GroupedMatmul:
    """Read and check a ``kern.grouped_matmul``. Raises Illegal."""
    values = dict(zip(("left", "right", "ends", "out"), (*op.operands, op.results[0]), strict=True))
    types: dict[str, TensorType] = {}
    for role, value in values.items():
        type_ = read_builtin(value.type)
        if type_ is None or not type_.is_static:
            raise Illegal(f"{role} is {value.type}; it must be a tensor of known sizes")
        types[role] = type_
    ranks = len(types["left"].shape), len(types["right"].shape)
    if ranks not in SHAPES:
        raise Illegal(f"left and right have {ranks[0]} and {ranks[1]} dims; two have 2, or one of them 3")
    *shapes, shared = SHAPES[ranks]
    dims = dict(zip(("left", "right", "out"), shapes, strict=True), ends="g")
    for role, name in TURNED.items():
        if name in op.attributes:
            dims[role] = turned(dims[role])
    sizes: dict[str, int] = {}
    for role, type_ in types.items():
        if len(type_.shape) != len(dims[role]):
            raise Illegal(f"{role} has {len(type_.shape)} dims; it must have [{', '.join(dims[role])}]")
        for dim, size in zip(dims[role], type_.shape, strict=True):
            agree(sizes, role, dim, size)
        allowed = FLOATS if role == "left" else (torch.int32,) if role == "ends" else (types["left"].dtype,)
        check_dtype(role, type_.dtype, allowed)
    return GroupedMatmul(sizes, shared, dims["left"], dims["right"], dims["out"], types["left"].dtype)


def group_sizes(left: Sequence[int], right: Sequence[int], groups: int) -> tuple[int, int, int, int]:
    """Return the number of products, and m, n and k of each, assuming that all groups have one size."""
    *dims, _, shared = SHAPES[len(left), len(right)]
    sizes = dict(zip("".join(dims), (*left, *right), strict=True))
    sizes[shared] = -(-sizes[shared] // groups)
    return groups, sizes["m"], sizes["n"], sizes["k"]


def turned(dims: str) -> str:
    """Return ``dims`` with the last two swapped."""
    return dims[:-2] + dims[:-3:-1]


def grouped_matmul(
    operands: Sequence[ir.Value], out: ir.Type, turned: Sequence[str] = (), **at: Unpack[At]
) -> ir.Value:
    """Build the op and return out. ``operands`` are left, right and ends; ``turned`` names transposed
    ones.
    """
    attributes = {TURNED[role]: ir.UnitAttr.get(at["loc"].context) for role in turned}
    name = GroupedMatmulOp.OPERATION_NAME
    return ir.Operation.create(name, [out], list(operands), attributes, **at).results[0]
