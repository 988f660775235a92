"""Which elements of a dim belong together: the rows of a head, the channels of a group."""

from __future__ import annotations

from collections import deque
from math import prod

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program


def block_size(program: Program, value: int, dim: int) -> int:
    """How many neighbouring elements of a dim stay together where a forward call first splits it, or 1.

    Rows [24] of a projection that are viewed as [3, 8] are blocks of 8: cut elsewhere, they are gathered.
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
    """The factors of a value's dim, for each operand of a call that is the value."""
    return [dims[dim] for dims, v in zip(node.rule.operands, node.operands, strict=True) if v == value]


def same_dims(node: Node, factors: tuple[str, ...]) -> list[tuple[int, int]]:
    """(value, dim) of the results' dims that are made of ``factors`` and nothing else."""
    results = zip(node.rule.results, node.results, strict=True)
    return [(v, d) for dims, v in results for d, other in enumerate(dims) if factors and other == factors]
