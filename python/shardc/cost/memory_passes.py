"""Groups memory-bound calls of a program into passes over memory.

A call joins the pass that makes one of its operands if both have as many elements, and if nothing else that
it reads was made since the pass began: then the whole pass can run where it began. A call that is not
pointwise (a reduction, norm, softmax or gather) ends its pass.
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
"""Calls that read no more of one tensor than they make, with that tensor's number."""


def is_pointwise(call: OpCall) -> bool:
    """Return whether each result element depends on one element of each operand alone."""
    if call.target in _ALSO_POINTWISE:
        return True
    try:
        return torch.Tag.pointwise in overload(call.target).tags
    except UnknownOperator:
        return False


def elements(call: OpCall) -> int:
    """Return the number of elements of the largest tensor that a call reads or makes."""
    types: Iterable[TensorType | None] = (*call.tensors, *call.results)
    return max((t.numel for t in types if t is not None), default=0)


def read_sizes(call: OpCall) -> Iterator[int]:
    """Yield the bytes that a call reads of each of its tensors."""
    made = max((t.size_bytes for t in call.results if t is not None), default=0)
    few = ROWS_READ.get(call.target)
    for number, type_ in enumerate(call.tensors):
        yield min(type_.size_bytes, made) if number == few else type_.size_bytes
