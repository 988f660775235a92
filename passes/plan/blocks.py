"""Which elements of a dim belong together: the rows of a head, the channels of a group."""

from __future__ import annotations

from collections import deque
from math import prod

from shardc.passes.manager.program import Node, Program


def block_size(program: Program, value: int, dim: int) -> int:
    """How many neighbouring elements of a value's dim stay together where a forward call first splits it; 1
    if none does.

    Rows [24] of a projection that are viewed as [3, 8] are blocks of 8: cut elsewhere, they had to be
    gathered first.
    """
    queue, seen = deque([(value, dim)]), {(value, dim)}
    while queue:
        here, d = queue.popleft()
        for number in program.users[here]:
            node = program.nodes[number]
            if "dist.phase" in node.op.attributes and node.op.attributes["dist.phase"].value != "forward":
                continue
            for names in (
                dims[d] for dims, v in zip(node.rule.operands, node.operands, strict=True) if v == here
            ):
                sizes = [n for f in names if (n := node.rule.sizes[f]) > 1]
                if len(sizes) > 1:
                    return prod(sizes[1:])
                new = [place for place in _same_dims(node, names) if place not in seen]
                seen.update(new)
                queue.extend(new)
    return 1


def _same_dims(node: Node, names: tuple[str, ...]) -> list[tuple[int, int]]:
    """(value, dim) of the results' dims that are the factor ``names`` and nothing else."""
    results = zip(node.rule.results, node.results, strict=True)
    return [(v, d) for dims, v in results for d, other in enumerate(dims) if names and other == names]
