"""``kern.grouped_matmul``: a matrix product for each of several groups, whose sizes are computed. Level 4."""

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
"""The attribute that says of an operand that its last two dims lie the other way round."""

SHAPES = {
    (2, 3): ("mk", "gkn", "mn", "m"),
    (3, 2): ("gmk", "kn", "mn", "n"),
    (2, 2): ("mk", "kn", "gmn", "k"),
}
"""By the ranks of left and right: the dims of left, right and out, and which one the groups share."""


class GroupedMatmulOp(Op, dialect=Kern, name="grouped_matmul", traits=[ext.Pure]):
    """A matrix product for each group; the groups share one dim, on which group g has
    ``ends[g-1] .. ends[g]``.

    With ``left`` [m, k] and ``right`` [g, k, n] they share m: each row is multiplied by the matrix of its
    group. With ``left`` [g, m, k] and ``right`` [k, n] they share n. Of m or n, what is behind the last end
    is 0 in ``out`` [m, n]. With ``left`` [m, k] and ``right`` [k, n] they share k: ``out`` [g, m, n] has a
    product for each group, 0 for one of no terms. ``ends`` [g] is of i32, in ascending order. All else is of
    one of f16, bf16 and f32, summed in f32.

    ``left_turned``, ``right_turned`` (optional): the last two dims of the operand lie the other way round.

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
    """What an op says: ``sizes`` by dim (m, n, k, g), the ``shared`` one, and tensors' dims in memory."""

    sizes: dict[str, int]
    shared: str
    left: str
    right: str
    out: str
    dtype: torch.dtype

    def numel(self, dims: str) -> int:
        return prod(self.sizes[dim] for dim in dims)


def grouped_matmul_of(op: ir.Operation) -> GroupedMatmul:
    """What a ``kern.grouped_matmul`` says. Raises Illegal."""
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
    """How many products of which m, n and k operands of these shapes stand for, if groups are of one size."""
    *dims, _, shared = SHAPES[len(left), len(right)]
    sizes = dict(zip("".join(dims), (*left, *right), strict=True))
    sizes[shared] = -(-sizes[shared] // groups)
    return groups, sizes["m"], sizes["n"], sizes["k"]


def turned(dims: str) -> str:
    """The last two the other way round."""
    return dims[:-2] + dims[:-3:-1]


def grouped_matmul(
    operands: Sequence[ir.Value], out: ir.Type, turned: Sequence[str] = (), **at: Unpack[At]
) -> ir.Value:
    """out of left, right and ends; ``turned``: which of left and right lie the other way round."""
    attributes = {TURNED[role]: ir.UnitAttr.get(at["loc"].context) for role in turned}
    name = GroupedMatmulOp.OPERATION_NAME
    return ir.Operation.create(name, [out], list(operands), attributes, **at).results[0]
