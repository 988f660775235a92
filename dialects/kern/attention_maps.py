"""Indexing maps of ``kern.attention`` and ``kern.attention_backward``, read as layouts of their tensors.

The maps' dims are ``(b, h, m, n, d, e)``: batch, query head, query, key, size of a query and key, size of a
value. Each result of a map is a dim, ``h floordiv g`` where g query heads share one key head, or 0 for a
broadcast dim of size 1. So a tensor may have its dims in any order, and a mask may be broadcast over any of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Unpack

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.build import At, i64
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Site
from shardc.dialects.kern.size import AnySize, hint
from shardc.dialects.kern.types import agree, check_dtype, read_builtin

DIMS = "bhmnde"
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes of queries, keys and values."""
ROLES = {
    **{"q": "bhmd", "k": "bhnd", "v": "bhne", "mask": "bhmn", "out": "bhme", "lse": "bhm"},
    **{"grad_out": "bhme", "dq": "bhmd", "dk": "bhnd", "dv": "bhne"},
}
"""Dims of each tensor; only a mask may lack some."""
PARTS = {
    "kern.attention": (("q", "k", "v"), ("out", "lse")),
    "kern.attention_backward": (("grad_out", "q", "k", "v", "out", "lse"), ("dq", "dk", "dv")),
}
"""Operands of each op, which an optional mask follows, and its results."""
KEYS = ("k", "v", "dk", "dv")
"""Tensors whose heads are shared by groups of query heads."""


@dataclass(frozen=True)
class Layout:
    """A tensor's type; ``order[dim]`` is the position of a dim in its shape."""

    type: TensorType
    order: Mapping[str, int]

    def stride(self, dim: str) -> AnySize:
        """Return the stride of a dim in elements; 0 if the tensor is broadcast over it."""
        return prod(self.type.shape[self.order[dim] + 1 :]) if dim in self.order else 0


@dataclass(frozen=True)
class Attention:
    """One attention, forward or backward: its tensors by role, its sizes by dim, and its settings.

    Sizes of heads are integers. Other dims are missing in ``sizes`` if the op's types have ``?`` for them.
    ``has_place``: the op's last operand is an index that is added to ``q_offset``.
    """

    tensors: Mapping[str, Layout]
    sizes: Mapping[str, AnySize]
    group: int
    causal: bool
    q_offset: int
    scale: float
    unseen_lse: float
    has_place: bool = False

    @property
    def likely_offset(self) -> int:
        """Return ``q_offset`` for estimates; a run-time position is assumed to be :func:`likely_place`."""
        rows, columns = (hint(self.sizes[dim]) for dim in "mn")
        return self.q_offset + likely_place(rows, columns) * self.has_place

    @property
    def kv_heads(self) -> int:
        return self.sizes["h"] // self.group


def likely_place(rows: int, columns: int) -> int:
    """Return the position that estimates assume for the first of ``rows`` among ``columns``: centred."""
    return max(0, columns - rows) // 2


@dataclass
class _Reader:
    sizes: dict[str, AnySize] = field(default_factory=dict)
    group: int = 1

    def layout(self, role: str, tensor: TensorType | None, map_: ir.AffineMap) -> Layout:
        if tensor is None or map_.n_dims != len(DIMS) or len(map_.results) != len(tensor.shape):
            wanted = f"take ({', '.join(DIMS)}) to each dim of its tensor"
            raise Illegal(f"the map of {role} must {wanted}, not be {map_}")
        order: dict[str, int] = {}
        for position, (expression, size) in enumerate(zip(map_.results, tensor.shape, strict=True)):
            dim, group = _dim(role, expression)
            if dim is None:
                if size != 1:
                    found = f"size {size} at position {position}"
                    raise Illegal(f"{role} has {found}, but its map reads it only at 0")
                continue
            if dim in order or dim not in ROLES[role]:
                held = ", ".join(ROLES[role])
                raise Illegal(f"the map of {role} may hold each of {held} once, not be {map_}")
            order[dim] = position
            self._size(role, dim, size if size is None else size * group)
            self.group = max(self.group, group)
        if role != "mask" and len(order) != len(ROLES[role]):
            raise Illegal(f"the map of {role} must hold each of {', '.join(ROLES[role])}, not be {map_}")
        return Layout(tensor, order)

    def _size(self, role: str, dim: str, size: AnySize | None) -> None:
        if dim in "hde" and not isinstance(size, int):
            raise Illegal(f"{role} must have a static size along {dim}, not {'?' if size is None else size}")
        if size is not None:
            agree(self.sizes, role, dim, size)


def _dim(role: str, expression: ir.AffineExpr) -> tuple[str | None, int]:
    """Return the dim that an expression reads (None if it reads none), and how many of its steps share an
    element.
    """
    if isinstance(expression, ir.AffineConstantExpr) and expression.value == 0:
        return None, 1
    if isinstance(expression, ir.AffineDimExpr):
        return DIMS[expression.position], 1
    if isinstance(expression, ir.AffineFloorDivExpr) and role in KEYS:
        dim, group = expression.lhs, expression.rhs
        if (
            isinstance(dim, ir.AffineDimExpr)
            and DIMS[dim.position] == "h"
            and isinstance(group, ir.AffineConstantExpr)
        ):
            return "h", group.value
    wanted = "dims, h floordiv a number (of keys and values) and 0"
    raise Illegal(f"the map of {role} may hold {wanted}, not {expression}")


Shapes = Sequence[tuple[AnySize, ...]]
"""Shapes of an op's operands and results, for types with ``?``."""


def check_attention(site: Site) -> None:
    """Verify either op. Raises LeftToMlir, Illegal."""
    if any(not site.has(name) for name in ("indexing_maps", "causal", "q_offset", "scale", "unseen_lse")):
        raise LeftToMlir
    read_attention(site.op)


def read_attention(op: ir.Operation, shapes: Shapes | None = None) -> Attention:
    """Read either op as an :class:`Attention`. Raises Illegal."""
    attributes, (operands, results) = op.attributes, PARTS[op.name]
    has_place = isinstance(op.operands[-1].type, ir.IndexType)
    tensors = list(op.operands)[: len(op.operands) - has_place]
    roles = [*operands, *["mask"][: len(tensors) - len(operands)], *results]
    maps = [ir.AffineMapAttr(a).value for a in attributes["indexing_maps"]]
    values = [*tensors, *op.results]
    if len(maps) != len(values) or len(roles) != len(values):
        raise Illegal(f"needs an indexing map for each of {', '.join(roles)}, has {len(maps)}")
    reader = _Reader()
    types = [read_builtin(v.type) for v in values]
    if shapes is not None:
        types = [t and t.with_shape(shape) for t, shape in zip(types, shapes, strict=True)]
    layouts = {r: reader.layout(r, t, m) for r, t, m in zip(roles, types, maps, strict=True)}
    _check_dtypes(layouts)
    for role, layout in layouts.items():
        if role in KEYS and layout.type.shape[layout.order["h"]] * reader.group != reader.sizes["h"]:
            raise Illegal(f"{role} must have one head for each {reader.group} of q's {reader.sizes['h']}")
    return Attention(
        layouts,
        reader.sizes,
        reader.group,
        ir.IntegerAttr(attributes["causal"]).value != 0,
        ir.IntegerAttr(attributes["q_offset"]).value,
        ir.FloatAttr(attributes["scale"]).value,
        ir.FloatAttr(attributes["unseen_lse"]).value,
        has_place,
    )


def _check_dtypes(tensors: Mapping[str, Layout]) -> None:
    dtype = tensors["q"].type.dtype
    check_dtype("q", dtype, FLOATS)
    for role, layout in tensors.items():
        allowed = (*FLOATS, torch.bool) if role == "mask" else (torch.float32,) if role == "lse" else (dtype,)
        check_dtype(role, layout.type.dtype, allowed)


def write_attention(
    name: str,
    operands: Sequence[ir.Value],
    results: Sequence[ir.Type],
    maps: Sequence[ir.AffineMap],
    causal: bool,
    q_offset: int,
    scale: float,
    unseen_lse: float,
    **at: Unpack[At],
) -> list[ir.Value]:
    """Build the op ``name``, one of :data:`PARTS`, and return its results."""
    loc, context = at["loc"], at["loc"].context
    f64 = ir.F64Type.get(context)
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps], context),
        "causal": ir.BoolAttr.get(causal, context),
        "q_offset": i64(q_offset, context),
        "scale": ir.FloatAttr.get(f64, scale, loc),
        "unseen_lse": ir.FloatAttr.get(f64, unseen_lse, loc),
    }
    return list(ir.Operation.create(name, results, operands, attributes, **at).results)


def map_of(dims: Sequence[str | None], group: int, context: ir.Context) -> ir.AffineMap:
    """Return the map of a tensor with ``dims`` in memory; None is a dim of size 1, read at 0.

    ``group`` query heads share each of its heads.
    """
    with context:
        read: dict[str | None, ir.AffineExpr] = {d: ir.AffineExpr.get_dim(i) for i, d in enumerate(DIMS)}
        read[None] = ir.AffineExpr.get_constant(0)
        if group > 1:
            read["h"] = ir.AffineExpr.get_floor_div(read["h"], group)
        return ir.AffineMap.get(len(DIMS), 0, [read[d] for d in dims])
