"""Concatenations and pads of a split dim to a size that devices do not divide, such as 1 + 64."""

from __future__ import annotations

from math import prod

from shardc.dialects.dist.sharding import Axes
from shardc.passes.manager.program import Node
from shardc.passes.propagate.refinement import read_refinements
from shardc.passes.propagate.split.foresight import Foresight


def makes_uneven(seen: Foresight, node: Node, axes: Axes) -> bool:
    """Return whether a join of floats makes a dim that ``axes`` do not divide of one that they split."""
    made = node.spec.result
    if not made.dtype.is_floating_point:
        return False
    ways = prod(a.size for a in axes)
    return any(made.shape[d] % ways for d in _split_dims(seen, node))


def _split_dims(seen: Foresight, node: Node) -> set[int]:
    """Return the dims that the call keeps whole and that are split in an operand."""
    found: set[int] = set()
    for value, dims in zip(node.operands, node.rule.operands, strict=True):
        split = seen.sharding(value).dims
        found |= {d for d, dim in enumerate(dims) if split[d] and node.rule.replicate.intersection(dim)}
    return found


def is_refined_later(seen: Foresight, node: Node, axes: Axes) -> bool:
    """Return whether a refinement splits what follows a join over ``axes`` anyway.

    The rows of attention are refined, for example: they are padded, and the sequence stays split.
    """
    program, names = seen.program, {a.name for a in axes}
    refined = {r.value for r in read_refinements(program) if r.axis in names}
    waiting, reached = list(node.results), set(node.results)
    while waiting and refined:
        value = waiting.pop()
        used = {a.name for a in seen.sharding(value).used} & names
        if any(_root(seen, value, name) in refined for name in used):
            return True
        if not used:
            made = {r for n in program.users[value] for r in program.nodes[n].results} - reached
            reached |= made
            waiting += made
    return False


def _root(seen: Foresight, value: int, axis: str) -> int:
    """Return the annotated or refined value from which a value got an axis."""
    while (came := seen.state.came(value, axis)) is not None:
        value = came[0]
    return value
