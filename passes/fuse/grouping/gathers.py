"""Legality of reads at computed indices of what the kernel computes itself.

A kernel does not store the elements that it reads at computed indices: it computes each where it is read.
"""

from __future__ import annotations

from collections import Counter

from shardc.dialects.kern.size import hint
from shardc.passes.fuse.grouping.refused import Refused
from shardc.passes.fuse.reading.graph import Node, Value
from shardc.passes.fuse.reading.space import Space

MAX_AGAIN = 2
"""Number of times that a kernel may compute any op for each element that it reads at computed indices."""
GATHER_OPS, HEAVY_OPS = 8, 32
"""Cost of a read at computed indices, and of an expensive op, in cheap ops."""
MAX_OPS = 64
"""Limit of the ops, each as often as it is computed, that replace a pass over memory."""


def apart(nodes: list[Node]) -> set[Node]:
    """Return the pointwise ops whose elements are computed only where others read them at computed indices.

    They may run over other dims than the kernel.
    """
    readers: dict[Value, list[tuple[Node, bool]]] = {}
    for node in nodes:
        for access in node.accesses:
            readers.setdefault(access.base, []).append((node, access.gathers))
    found: set[Node] = set()
    for node in reversed(nodes):
        read = readers.get(node.out, ())
        if read and not node.reduce and all(gathers or reader in found for reader, gathers in read):
            found.add(node)
    summed = {node.out for node in nodes if node.reduce}
    for node in nodes:  # what is computed from a sum of the kernel is not known when it is read
        if any(access.base in summed for access in node.accesses):
            found.discard(node)
            summed.add(node.out)
    return found


def check_gathers(nodes: list[Node], space: Space) -> None:
    if not any(node.gathers for node in nodes):
        return
    gathers = [access for node in nodes for access in node.accesses if access.gathers]
    if any(node.contracts for node in nodes):
        raise Refused("a matmul cannot read at computed indices")
    makers = {node.out: node for node in nodes}
    _check_computed_again(nodes, makers)
    for access in gathers:
        made = makers[access.base].out_dims if access.base in makers else [()] * len(access.dims)
        gathered = (atoms for dim, atoms in zip(access.dims, made, strict=True) if dim.gathered)
        if any(len(space.resolve(atoms)) > 1 for atoms in gathered):
            raise Refused("it reads at computed indices along a dim that is split")


def _check_computed_again(nodes: list[Node], makers: dict[Value, Node]) -> None:
    """Check that reads at computed indices do not compute expensive ops again and again. Raises Refused."""
    times: Counter[Value] = Counter()
    for node in nodes:
        for access in node.accesses:
            if access.gathers and access.base in makers:
                times[access.base] += node.reads * hint(node.out.type.numel)
    for value, count in times.items():
        again = count / hint(value.type.numel)
        cost = _cost(makers[value], hint(value.type.numel), makers) if again > MAX_AGAIN else 0
        if again * cost > MAX_OPS:
            raise Refused(f"it would compute {cost} ops {again:.1f} times for each element")


def _cost(node: Node, elements: int, makers: dict[Value, Node]) -> int:
    """Return the ops on as many elements that the elements of a result come from."""
    left, seen, ops = [node], set[Value](), 0
    while left:
        node = left.pop()
        if node.out in seen or node.reduce or hint(node.out.type.numel) < elements:
            continue
        seen.add(node.out)
        reads = node.reads * sum(access.gathers for access in node.accesses)
        ops += (HEAVY_OPS if node.heavy else 1) + GATHER_OPS * reads
        left += (makers[access.base] for access in node.accesses if access.base in makers)
    return ops
