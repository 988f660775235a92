"""Blocks of elements of a dim that must stay together, such as a head or a group of channels."""

from __future__ import annotations

from collections import deque
from math import prod

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program


def block_size(program: Program, value: int, dim: int) -> int:
    """Return how many adjacent elements of a dim stay together at the first forward view that splits it, or
    1.

    Rows [24] of a projection that are viewed as [3, 8] are blocks of 8; another split would need a gather.
    """
    queue, seen = deque([(value, dim)]), {(value, dim)}
    while queue:
        here, d = queue.popleft()
        for number in program.users[here]:
            node = program.nodes[number]
            if phase_of(node.op) not in ("", "forward"):
                continue
            for factors in factors_of(node, here, d):
                sizes = [n for f in factors if (n := node.rule.sizes[f]) > 1]
                if len(sizes) > 1:
                    return prod(sizes[1:])
                new = [place for place in same_dims(node, factors) if place not in seen]
                seen.update(new)
                queue.extend(new)
    return 1


def factors_of(node: Node, value: int, dim: int) -> list[tuple[str, ...]]:
    """Return the factors of a value's dim, for each operand of a call that is the value."""
    return [dims[dim] for dims, v in zip(node.rule.operands, node.operands, strict=True) if v == value]


def same_dims(node: Node, factors: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return (value, dim) of the results' dims whose factors are exactly ``factors``."""
    results = zip(node.rule.results, node.results, strict=True)
    return [(v, d) for dims, v in results for d, other in enumerate(dims) if factors and other == factors]
