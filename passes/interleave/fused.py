"""Recognition of fused weights: several parts (queries, keys, values; gate, up) that slices separate."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise

from shardc.dialects.rules.rule import Rule
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.propagate.blocks import block_size, factors_of, same_dims


@dataclass(frozen=True)
class Fused:
    """Parts of a dim.

    ``sizes``: sizes of all parts. ``blocks``: for each slice, the number of blocks (heads) in it.
    ``slices``: numbers of the nodes that slice the dim.
    """

    sizes: tuple[int, ...]
    blocks: tuple[int, ...]
    slices: tuple[int, ...]

    def divides(self, ways: int) -> bool:
        """Return whether each part can be split into ``ways`` between its blocks."""
        return all(n % ways == 0 for n in (*self.sizes, *self.blocks))


def find_fused(program: Program, value: int, dim: int) -> Fused | None:
    """Return the parts into which forward slices a dim of a parameter.

    The dim is followed through calls that keep it unchanged. None unless slices of several parts are its only
    other readers.
    """
    found, size = _slices(program, value, dim), program.types[value].shape[dim]
    ends = sorted({0, size, *(end for _, *part in found for end in part)})
    if len(ends) < 3:
        return None
    blocks = tuple((end - start) // _block(program, n) for n, start, end in found)
    return Fused(tuple(b - a for a, b in pairwise(ends)), blocks, tuple(n for n, *_ in found))


def _slices(program: Program, value: int, dim: int) -> list[tuple[int, int, int]]:
    """Return (node, start, end) of all slices of a dim, and of slices of slices.

    Empty if any other call reads the dim without keeping it unchanged.
    """
    found: list[tuple[int, int, int]] = []
    queue, seen = deque([(value, dim)]), {(value, dim)}
    while queue:
        here, d = queue.popleft()
        for number in program.users[here]:
            node = program.nodes[number]
            if phase_of(node.op) != "forward":
                continue
            part = sliced(node, d)
            if part is not None:
                start, end = part
                inside = _slices(program, node.results[0], d)
                found += [(number, start, end), *((n, start + a, start + b) for n, a, b in inside)]
                continue
            factors, *others = set(factors_of(node, here, d))
            kept = not others and len(factors) == 1 and factors[0] not in node.rule.replicate
            places = same_dims(node, factors) if kept else []
            if not places:
                return []
            new = [place for place in places if place not in seen]
            seen.update(new)
            queue.extend(new)
    return found


def sliced(node: Node, dim: int) -> tuple[int, int] | None:
    """Return (start, end) of a slice along ``dim``; None for other nodes, and for slices of the whole dim."""
    spec = node.spec
    if spec.target != "aten.slice.Tensor" or spec["step"] != 1:
        return None
    size = spec["self"].shape[dim]
    if spec["dim"] % len(spec["self"].shape) != dim:
        return None
    ends = (0 if spec["start"] is None else spec["start"], size if spec["end"] is None else spec["end"])
    start, end = (max(0, min(size, n + size if n < 0 else n)) for n in ends)
    return (start, end) if (start, end) != (0, size) else None


def _block(program: Program, number: int) -> int:
    """Return the number of elements per block (head) in the result of slice ``number``."""
    node = program.nodes[number]
    return block_size(program, node.results[0], node.spec["dim"] % len(node.spec["self"].shape))


def seen_through(program: Program, fused: list[Fused]) -> Program:
    """Return the program with rules that propagate splits through the slices of ``fused``.

    Interleaved weights have such slices.
    """
    nodes = list(program.nodes)
    for number in (n for f in fused for n in f.slices):
        node = nodes[number]
        dim = node.spec["dim"] % len(node.spec["self"].shape)
        (source,), (result,) = node.rule.operands, node.rule.results
        whole, part = ((*dims[:dim], ("part",), *dims[dim + 1 :]) for dims in (source, result))
        sizes = {**node.rule.sizes, "part": program.types[node.results[0]].shape[dim]}
        nodes[number] = replace(node, rule=Rule((whole,), (part,), sizes, linear=node.rule.linear))
    return replace(program, nodes=nodes)
