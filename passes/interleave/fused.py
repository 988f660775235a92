"""Fused weights of several parts (queries, keys and values; gate and up), which slices take apart."""

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
    """The parts of a dim: ``sizes`` of all parts; ``blocks`` (heads) and slicing nodes of parts that are
    read.
    """

    sizes: tuple[int, ...]
    blocks: tuple[int, ...]
    slices: tuple[int, ...]

    def divides(self, ways: int) -> bool:
        """Return whether each part can be split into ``ways`` between its blocks."""
        return all(n % ways == 0 for n in (*self.sizes, *self.blocks))


def find_fused(program: Program, value: int, dim: int) -> Fused | None:
    """What a dim of a parameter, followed through the forward calls that keep it as it is, is sliced into.

    None where nothing but slices, of several parts, reads it in the end.
    """
    found, size = _slices(program, value, dim), program.types[value].shape[dim]
    ends = sorted({0, size, *(end for _, *part in found for end in part)})
    if len(ends) < 3:
        return None
    blocks = tuple((end - start) // _block(program, n) for n, start, end in found)
    return Fused(tuple(b - a for a, b in pairwise(ends)), blocks, tuple(n for n, *_ in found))


def _slices(program: Program, value: int, dim: int) -> list[tuple[int, int, int]]:
    """(node, start, end) of the slices that alone read a dim of a value or of such a slice; else nothing."""
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
    """The elements that a node takes of a dim; None if it is no slice of it, or takes all."""
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
    """How many elements of what the slice ``number`` takes belong together."""
    node = program.nodes[number]
    return block_size(program, node.results[0], node.spec["dim"] % len(node.spec["self"].shape))


def seen_through(program: Program, fused: list[Fused]) -> Program:
    """The program with rules by which cuts go through the slices of ``fused``, as in interleaved ones."""
    nodes = list(program.nodes)
    for number in (n for f in fused for n in f.slices):
        node = nodes[number]
        dim = node.spec["dim"] % len(node.spec["self"].shape)
        (source,), (result,) = node.rule.operands, node.rule.results
        whole, part = ((*dims[:dim], ("part",), *dims[dim + 1 :]) for dims in (source, result))
        sizes = {**node.rule.sizes, "part": program.types[node.results[0]].shape[dim]}
        nodes[number] = replace(node, rule=Rule((whole,), (part,), sizes, linear=node.rule.linear))
    return replace(program, nodes=nodes)
