"""Choice of the dim along which devices share a product that all of them would compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.passes.interleave.rows import RESHAPES
from shardc.passes.manager.program import Node, Program
from shardc.passes.products.repeated import Repeated


@dataclass(frozen=True)
class Candidate:
    """A dim of a value that a product's result has, or that a reshape makes of a dim of the result."""

    value: int
    dim: int
    size: int
    ways: int
    """Blocks that the dim has already, over other axes."""

    def waste(self, blocks: int) -> float:
        """Return the padded size for so many more blocks, as a part of the size."""
        ways = self.ways * blocks
        return -(-self.size // ways) * ways / self.size


def best_dim(program: Program, product: Repeated, blocks: int) -> Candidate | None:
    """Return the dim that ``blocks`` more devices split with the least padding, the longest of equal ones.

    None if each dim has fewer elements than devices. The last dim is never split, because layers sum over it.
    """
    found = [c for c in _candidates(program, product) if c.size >= c.ways * blocks]
    return min(found, key=lambda c: (c.waste(blocks), -c.size), default=None)


def _candidates(program: Program, product: Repeated) -> Iterator[Candidate]:
    node = program.nodes[product.node]
    rule, value = node.rule, node.results[0]
    shape, dims = program.types[value].shape, rule.results[0]
    for d, dim in enumerate(dims[:-1]):
        if not dim or rule.replicate.intersection(dim):
            continue
        apart = _apart(program, value, d, product.ways[d])
        yield from apart or [Candidate(value, d, shape[d], product.ways[d])]


def _apart(program: Program, value: int, dim: int, ways: int) -> list[Candidate]:
    """Return the dims that a reshape makes of a dim: a linear layer's rows become batch and sequence.

    The dim is split already in ``ways`` blocks, which are blocks of the first of these dims.
    """
    for number in program.users[value]:
        node = program.nodes[number]
        if node.spec.target in RESHAPES and node.known:
            made = _parts(node, dim)
            if len(made) > 1:
                shape = node.spec.result.shape
                return [Candidate(node.results[0], d, shape[d], ways if d == made[0] else 1) for d in made]
    return []


def _parts(node: Node, dim: int) -> list[int]:
    """Return the dims of a reshape's result whose factors are those of ``dim`` of its operand, if all are."""
    (source,), (target,) = node.rule.operands, node.rule.results
    found = [d for d, own in enumerate(target) if own and set(own) <= set(source[dim])]
    whole = tuple(f for d in found for f in target[d]) == source[dim]
    return found if whole and not node.rule.replicate.intersection(source[dim]) else []
