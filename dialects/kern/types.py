"""Conversion between value tensors of the torch dialect and builtin tensors of a kernel's body.

Shapes are the same. Integers become signless, and booleans become bytes of 0 or 1, as in a torch tensor's
memory. So an i8 in a body is a bool, an int8 or a uint8; the types of the kernel's operands and results tell
which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.verifier import Illegal

T = TypeVar("T")

ELEMENTS = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int8: "i8",
    torch.uint8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "i8",
}
"""Dtypes that kernels support -> element types in memory."""

_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}


def element_type(dtype: torch.dtype, context: ir.Context) -> ir.Type:
    """Return the element type of ``dtype`` in memory. Raises KeyError if kernels do not support it."""
    return ir.Type.parse(ELEMENTS[dtype], context)


def builtin_type(type_: TensorType, context: ir.Context) -> ir.Type:
    """Return the builtin tensor type of a type; symbolic sizes are ``?``. Raises KeyError."""
    shape = "".join(f"{n}x" if isinstance(n, int) else "?x" for n in type_.shape)
    return ir.Type.parse(f"tensor<{shape}{ELEMENTS[type_.dtype]}>", context)


def agree(sizes: dict[str, T], role: str, dim: str, size: T) -> None:
    """Record the size of ``role`` along ``dim``. Raises Illegal if another tensor has a different size."""
    if sizes.setdefault(dim, size) != size:
        raise Illegal(f"{role} has size {size} along {dim}, where another tensor has {sizes[dim]}")


def check_dtype(role: str, dtype: torch.dtype, allowed: Sequence[torch.dtype]) -> None:
    """Check a tensor's dtype. Raises Illegal if its op does not support it."""
    if dtype not in allowed:
        raise Illegal(f"{role} is of {dtype}; it must be of {' or '.join(map(str, allowed))}")


def read_builtin(type_: ir.Type) -> TensorType | None:
    """Return the shape (None for ``?``) and dtype of a builtin tensor, or None for other types.

    An i8 is read as a bool.
    """
    if not isinstance(type_, ir.RankedTensorType):
        return None
    tensor = ir.RankedTensorType(type_)
    dtype = _DTYPES.get(str(tensor.element_type))
    if dtype is None:
        return None
    sizes = (None if tensor.is_dynamic_dim(d) else n for d, n in enumerate(tensor.shape))
    return TensorType.of(sizes, dtype)
