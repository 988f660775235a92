"""Signatures of kernels, to find equal kernels with other sizes, and the distance of sizes."""

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
"""Attributes that do not depend on sizes, but change what a kernel computes."""


@dataclass(frozen=True)
class Signature:
    """Signature of a kernel.

    ``skeleton``: hash of its ops, data flow and element types, without sizes and constants. ``sizes``: sizes
    of its arguments and results. ``dtype``: MLIR's name of its first result's element type.
    """

    skeleton: str
    sizes: tuple[int, ...]
    dtype: str

    @property
    def shape_class(self) -> str:
        """Exponents of the powers of two that are nearest to the sizes."""
        return " ".join(str(round(log2(max(1, n)))) for n in self.sizes)


def distance(a: Sequence[int], b: Sequence[int]) -> float:
    """Return the largest log2 ratio between corresponding sizes; infinite if their numbers differ."""
    if len(a) != len(b):
        return float("inf")
    return max((abs(log2(max(1, x) / max(1, y))) for x, y in zip(a, b, strict=True)), default=0.0)


@lru_cache(maxsize=4096)
def signature(task: Task) -> Signature:
    """Return the signature of a task's kernel."""
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
    """Yield lines for an op and its nested ops, with values named by numbers."""
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
