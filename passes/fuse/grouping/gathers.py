"""Legality of reads at computed indices of what the kernel computes itself.

A kernel does not store the elements that it reads at computed indices: it computes each where it is read.
"""

from __future__ import annotations

from collections.abc import Hashable

from shardc.dialects.kern.size import hint
from shardc.passes.fuse.grouping.refused import Refused
from shardc.passes.fuse.reading.graph import Node, Value
from shardc.passes.fuse.reading.space import Space

GATHER_OPS, HEAVY_OPS = 8, 32
"""Cost of a read at computed indices, and of an expensive op, in cheap ops."""
MAX_OPS = 36
"""Limit of the ops that are computed again for an element, instead of a pass over memory: an expensive op and
a few cheap ones once more."""
MAX_PLACES = 64
"""Most indices of one value that are told apart; beyond, values that it is computed from have one for all."""

_Places = dict[Hashable, float]
"""Where an op's elements are computed: the chain of reads at computed indices -> how many elements."""


def apart(nodes: list[Node]) -> set[Node]:
    """Return the pointwise ops whose elements are computed only where others read them at computed indices.

    They may run over other dims than the kernel.
    """
    readers: dict[Value, list[tuple[Node, bool]]] = {}
    for node in nodes:
        for access in node.accesses:
            readers.setdefault(access.base, []).append((node, access.jumps))
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
    makers = {node.out: node for node in nodes}
    jumps = (access for node in nodes for access in node.accesses if access.jumps)
    gathers = [access for access in jumps if access.gathers or access.base in makers]
    if not gathers:
        return
    if any(node.contracts for node in nodes):
        raise Refused("a matmul cannot read at computed indices")
    _check_computed_again(nodes, makers)
    for access in gathers:
        made = makers[access.base].out_dims if access.base in makers else [()] * len(access.dims)
        gathered = (atoms for dim, atoms in zip(access.dims, made, strict=True) if dim.gathered or dim.sliced)
        if any(len(space.resolve(atoms)) > 1 for atoms in gathered):
            raise Refused("it reads at computed indices along a dim that is split")


def _check_computed_again(nodes: list[Node], makers: dict[Value, Node]) -> None:
    """Check that reads at computed indices do not compute expensive ops again and again. Raises Refused."""
    computed = _times_computed(nodes)
    for value in {access.base for node in nodes for access in node.accesses if access.jumps} & makers.keys():
        again = computed[value] / hint(value.type.numel) - 1
        cost = _cost(makers[value], hint(value.type.numel), makers)
        if again * cost > MAX_OPS:
            raise Refused(f"it would compute {cost} ops {again:.1f} times again for each element")


def _times_computed(nodes: list[Node]) -> dict[Value, float]:
    """Return how many elements of each op are computed in all, with repetitions.

    What is read at computed indices is computed for each read, and so is what it reads.
    """
    readers: dict[Value, list[tuple[Node, bool]]] = {}
    for node in nodes:
        for access in node.accesses:
            readers.setdefault(access.base, []).append((node, access.jumps))
    elsewhere, found = apart(nodes), dict[Value, _Places]()
    for node in reversed(nodes):
        read = readers.get(node.out, ())
        places: _Places = {}
        if not read or not all(gathers for _, gathers in read):
            places[()] = float(hint(node.out.type.numel))
        for reader, gathers in read:
            if gathers:
                for place, times in found[reader.out].items():
                    places[reader.order, place] = times * reader.reads
            elif reader in elsewhere:
                for place, times in found[reader.out].items():
                    places[place] = max(places.get(place, 0.0), times)
        found[node.out] = places if len(places) <= MAX_PLACES else {node.order: sum(places.values())}
    return {value: sum(places.values()) for value, places in found.items()}


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
