"""``kern.scatter_add``: adds rows at computed indices, in a kernel's body. Level 4."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Unpack

import torch
from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.build import At, i64
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Op, Operand, Result, Site
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.size import AnySize
from shardc.dialects.kern.types import read_builtin

IGNORED = "ignored"
WRAPS = "wraps"


class ScatterAddOp(Op, dialect=Kern, name="scatter_add", traits=[ext.Pure]):
    """``out[.., r, ..] = init[.., r, ..] + sum of updates[.., p.., ..] over all p with index[p..] == r``.

    r counts along dim ``dim`` of out. ``index`` is i64 or i32, of any shape; the shape of ``updates`` is that
    of out with dim ``dim`` replaced by the shape of ``index``. Sums start from ``init``, or 0. They are in
    the order of the positions p (on GPUs adjacent positions are added first), in f32 for f16 and bf16, so
    results do not depend on the number of threads.

    ``ignored`` (optional): the index that adds nothing. ``wraps`` (optional): indices below 0 count from the
    end. ``wrong`` is the largest index that is neither in range nor ``ignored``, or the smallest si64 if
    there is none. Such an index adds nothing.

    ``%out, %wrong = "kern.scatter_add"(%index, %updates, %init) {dim = 0 : i64, ignored = 1 : i64}
    : (tensor<2x8xi64>, tensor<2x8x16xf32>, tensor<50x16xf32>) -> (tensor<50x16xf32>, tensor<i64>)``
    """

    out: Result
    wrong: Result
    index: Operand
    updates: Operand
    dim: ir.IntegerAttr
    init: Operand | None = None

    def check(self, site: Site) -> None:
        if not site.has("dim") or len(site.op.results) != 2:
            raise LeftToMlir
        scatter_add_of(site.op)


@dataclass(frozen=True)
class ScatterAdd:
    """An op as read.

    ``rows`` is the size of ``dim`` in out, ``outer`` the product of the sizes before it, ``inner`` of those
    behind it. ``count`` is the number of indices. ``ignored`` is None if no index is ignored.
    """

    index: TensorType
    updates: TensorType
    out: TensorType
    dim: int
    has_init: bool
    ignored: int | None
    wraps: bool

    @property
    def count(self) -> AnySize:
        return prod(self.index.shape)

    @property
    def outer(self) -> AnySize:
        return prod(self.out.shape[: self.dim])

    @property
    def rows(self) -> AnySize:
        return self.out.shape[self.dim]

    @property
    def inner(self) -> AnySize:
        return prod(self.out.shape[self.dim + 1 :])


def scatter_add_of(op: ir.Operation, shapes: Sequence[tuple[AnySize, ...]] | None = None) -> ScatterAdd:
    """Read and check an op. ``shapes`` of operands and out replace types with ``?``. Raises Illegal."""
    has_init = len(op.operands) > 2
    roles = ("index", "updates", *["init"] * has_init, "out", "wrong")
    values = dict(zip(roles, (*op.operands, *op.results), strict=True))
    types: dict[str, TensorType] = {}
    for role, value in values.items():
        type_ = read_builtin(value.type)
        if type_ is None:
            raise Illegal(f"{role} is {value.type}, not a tensor that kernels accept")
        types[role] = type_
    dim = ir.IntegerAttr(op.attributes["dim"]).value
    _check_types(types, dim)
    ignored = ir.IntegerAttr(op.attributes[IGNORED]).value if IGNORED in op.attributes else None
    index, updates, out = (types[role] for role in ("index", "updates", "out"))
    if shapes is not None:
        places = (index, 0), (updates, 1), (out, len(op.operands))
        index, updates, out = (type_.with_shape(shapes[place]) for type_, place in places)
    return ScatterAdd(index, updates, out, dim, has_init, ignored, WRAPS in op.attributes)


def _check_types(types: dict[str, TensorType], dim: int) -> None:
    index, updates, out = (types[role] for role in ("index", "updates", "out"))
    if index.dtype not in (torch.int64, torch.int32):
        raise Illegal(f"index is of {index.dtype}; it must be of torch.int64 or torch.int32")
    if types["wrong"] != TensorType((), torch.int64):
        raise Illegal(f"wrong is {types['wrong']}; it must be a single si64")
    if not 0 <= dim < len(out.shape):
        raise Illegal(f"dim is {dim}; out has {len(out.shape)} dims")
    if out.dtype == torch.bool:
        raise Illegal("cannot add booleans")
    for role in ("updates", "init"):
        if role in types and types[role].dtype != out.dtype:
            raise Illegal(f"{role} is of {types[role].dtype}, out of {out.dtype}")
    if "init" in types and types["init"].shape != out.shape:
        raise Illegal(f"init is {types['init']}, out {out}")
    wanted = (*out.shape[:dim], *index.shape, *out.shape[dim + 1 :])
    if updates.shape != wanted:
        must = updates.with_shape(wanted)
        raise Illegal(f"updates is {updates}; with this index and out it must be {must}")


def scatter_add(
    operands: Sequence[ir.Value],
    out: ir.Type,
    dim: int,
    *,
    ignored: int | None = None,
    wraps: bool = False,
    **at: Unpack[At],
) -> list[ir.Value]:
    """Build the op and return out and wrong. ``operands`` are index, updates and optionally init."""
    context = at["loc"].context
    attributes: dict[str, ir.Attribute] = {"dim": i64(dim, context)}
    if ignored is not None:
        attributes[IGNORED] = i64(ignored, context)
    if wraps:
        attributes[WRAPS] = ir.UnitAttr.get(context)
    wrong = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64, context), loc=at["loc"])
    name = ScatterAddOp.OPERATION_NAME
    return list(ir.Operation.create(name, [out, wrong], list(operands), attributes, **at).results)
