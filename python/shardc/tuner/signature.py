"""What kernels of different sizes have in common, and how far their sizes lie apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log2

from torch_mlir import ir

from shardc.backends.tuning.kernel_text import configured
from shardc.backends.tuning.task import Task

_TEXTS = (
    "indexing_maps",
    "iterator_types",
    "reassociation",
    "predicate",
    "kern.in_place",
    "kern.flat",
    "kern.shapes",
)
"""Attributes that are the same at all sizes, and change what a kernel does."""


@dataclass(frozen=True)
class Signature:
    """``skeleton``: a hash of a kernel's ops, data flow and element types, without sizes and constants;
    ``sizes``: of its arguments and results; ``dtype``: MLIR's name of its first result's.
    """

    skeleton: str
    sizes: tuple[int, ...]
    dtype: str

    @property
    def shape_class(self) -> str:
        """Sizes as the nearest powers of two."""
        return " ".join(str(round(log2(max(1, n)))) for n in self.sizes)


def distance(a: Sequence[int], b: Sequence[int]) -> float:
    """Of sizes: the largest ratio of one of them, in powers of two; infinite where there are not as many."""
    if len(a) != len(b):
        return float("inf")
    return max((abs(log2(max(1, x) / max(1, y))) for x, y in zip(a, b, strict=True)), default=0.0)


@lru_cache(maxsize=4096)
def signature(task: Task) -> Signature:
    """Of a task's kernel."""
    module = configured(task, None)
    (view,) = module.body
    function = view.operation
    block = function.regions[0].blocks[0]
    results = list(list(block.operations)[-1].operation.operands)
    types = [v.type for v in (*block.arguments, *results) if isinstance(v.type, ir.RankedTensorType)]
    sizes = tuple(n for type_ in types for n in ir.RankedTensorType(type_).shape if n >= 0)
    elements = [str(v.type.element_type) for v in results if isinstance(v.type, ir.RankedTensorType)]
    text = "\n".join(_lines(function, {}))
    return Signature(hashlib.sha256(text.encode()).hexdigest()[:32], sizes, elements[0] if elements else "")


def _lines(op: ir.Operation, numbers: dict[ir.Value, int]) -> Iterator[str]:
    """An op and what is inside of it, with values by their numbers."""
    for result in op.results:
        numbers[result] = len(numbers)
    attributes = [f"{name}={op.attributes[name]}" for name in _TEXTS if name in op.attributes]
    yield " ".join([op.name, *(str(numbers[v]) for v in op.operands), *map(_form, op.results), *attributes])
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                numbers[argument] = len(numbers)
                yield _form(argument)
            for view in block.operations:
                yield from _lines(view.operation, numbers)


def _form(value: ir.Value) -> str:
    type_ = value.type
    if not isinstance(type_, ir.RankedTensorType):
        return str(type_)
    dims = "".join("?" if type_.is_dynamic_dim(d) else "." for d in range(type_.rank))
    return f"{type_.element_type}{dims}"
