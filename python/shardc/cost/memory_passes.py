"""Which memory-bound calls of a program are one pass over memory.

A call joins the pass that makes one of its operands if both go over as many elements, and nothing else that
it reads was made since the pass began: the pass can stand where it began. A call that is not pointwise (a
reduction, a norm, a softmax, a gather) ends its pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import UnknownOperator, overload
from shardc.dialects.aten.types import TensorType

_COPIES = ("clone", "_to_copy", "copy")
_CREATIONS = ("full", "zeros", "ones", "empty.memory_format", "arange", "arange.start", "arange.start_step")
_LIKE = ("scalar_tensor", "full_like", "zeros_like", "ones_like", "new_zeros", "new_full", "new_ones")
_ALSO_POINTWISE = {"shardc.uniform", *(f"aten.{name}" for name in (*_COPIES, *_CREATIONS, *_LIKE))}
ROWS_READ = {"aten.embedding": 0, "aten.gather": 0, "aten.index.Tensor": 0, "aten.index_select": 0}
"""Of these calls, the tensor of which no more is read than is made."""


def is_pointwise(call: OpCall) -> bool:
    """Whether each element that a call makes depends on one place of its operands alone."""
    if call.target in _ALSO_POINTWISE:
        return True
    try:
        return torch.Tag.pointwise in overload(call.target).tags
    except UnknownOperator:
        return False


def elements(call: OpCall) -> int:
    """The elements of the largest tensor that a call reads or makes."""
    types: Iterable[TensorType | None] = (*call.tensors, *call.results)
    return max((t.numel for t in types if t is not None), default=0)


def read_sizes(call: OpCall) -> Iterator[int]:
    """Bytes that a call reads of each of its tensors."""
    made = max((t.size_bytes for t in call.results if t is not None), default=0)
    few = ROWS_READ.get(call.target)
    for number, type_ in enumerate(call.tensors):
        yield min(type_.size_bytes, made) if number == few else type_.size_bytes
