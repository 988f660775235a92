"""Bytes and instructions of loops, for cost models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod

from torch_mlir import ir

from shardc.backends.body.graph import Argument, Computed, Value
from shardc.backends.body.roots import Reads, Root, Roots, base
from shardc.cost.work import FUNCTION_INSTRUCTIONS
from shardc.dialects.kern.size import hint

_DEAR = ("arith.divf", "arith.remf")


def element_bytes(element: ir.Type) -> int:
    assert isinstance(element, ir.IntegerType | ir.FloatType)
    return max(1, element.width // 8)


def read_bytes(
    members: Collection[Root], reads: Mapping[Root, Reads], roots: Roots, made: Collection[Root] = ()
) -> int:
    """Return the bytes of the tensors that ``members`` read, each once; of a gathered one, those that are
    read.

    Results of the roots ``made`` do not come from memory.
    """
    found: dict[int | Value, int] = {}
    for root in members:
        asked = hint(prod(root.sizes))
        for value, _ in reads[root].ends:
            end = base(value)
            if not isinstance(end, Argument) and roots.of.get(end) in made:
                continue
            key = end.position if isinstance(end, Argument) else end  # the same tensor in any shape
            size = min(hint(prod(end.shape)), asked) * element_bytes(end.element)
            found[key] = max(found.get(key, 0), size)
    return sum(found.values())


def written_bytes(root: Root, n: int) -> int:
    """Return the bytes of a result of a root."""
    return hint(prod(root.result_shape(n))) * element_bytes(result_element(root, n))


def result_element(root: Root, n: int) -> ir.Type:
    """Return the element type of a result of a root."""
    made = root.generic.inits[n] if root.generic else root.value
    assert made is not None
    return made.element


def instructions(values: Iterable[Computed]) -> int:
    """Return the instructions per element of intermediate values."""
    ops = [op.name for generic in dict.fromkeys(v.generic for v in values) for op in generic.body_ops]
    dear = sum(name.startswith("math.") or name in _DEAR for name in ops)
    return len(ops) + dear * (FUNCTION_INSTRUCTIONS - 1)
