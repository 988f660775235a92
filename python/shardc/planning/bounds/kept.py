"""Lower bound of the activations that a step keeps from forward for backward, read from its level 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.backends.torch.memory.postpone import MOVES
from shardc.dialects.aten.schema import overload
from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.manager.attributes import observed, phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.recompute.policies import PHASE
from shardc.runtime.first_run import may_share

FORWARD, READERS = "forward", ("backward", PHASE)
GRADIENTS = ("grad:", "own-grad:")
"""Prefixes of the names of values that are gradients of parameters."""


@dataclass(frozen=True)
class Kept:
    """Bytes of a step on one device, for all samples.

    ``sizes``: how many values of each number of bytes depend on parameters, are made in forward and read in
    backward. Values that share memory count as one, and not more than is read. ``gradient_bytes``: bytes of
    the parameters that get gradients.
    """

    sizes: Mapping[int, int] = field(default_factory=dict)
    gradient_bytes: int = 0

    @classmethod
    def of(cls, program: Program) -> Kept:
        """Read a step at level 1, after recomputation."""
        needed, owner = _needed(program), _owners(program)
        parameters = _parameters(program)
        depends = set(parameters.values())
        for node in program.nodes:
            if not depends.isdisjoint(node.operands):
                depends.update(node.results)
        read: dict[int, dict[int, int]] = {}
        for number in needed:
            node = program.nodes[number]
            if phase_of(node.op) in READERS:
                for value in node.operands:
                    if (whole := owner[value]) is not None:
                        read.setdefault(whole, {})[value] = program.types[value].size_bytes
        sizes = [
            min(program.types[value].size_bytes, sum(seen.values()))
            for value, seen in read.items()
            if value in depends and _phase(program, value) == FORWARD
        ]
        graded = {name for number in needed for name in _graded(program.nodes[number].op)}
        gradients = (program.types[v].size_bytes for name, v in parameters.items() if name in graded)
        return cls(Counter(sizes), sum(gradients))

    @property
    def bytes_in_stages(self) -> float:
        """Bytes that stages of a pipeline keep. Forward is a function there, which returns what is kept."""
        return float(sum(size * count for size, count in self.sizes.items()))

    @property
    def bytes_in_order(self) -> float:
        """Bytes that each order of a step without stages keeps at the end of forward.

        An order postpones at most :data:`MOVES` ops of forward to where backward reads their results. What
        these made is not kept then, so the largest are not counted.
        """
        moved, left = 0, MOVES
        for size, count in sorted(self.sizes.items(), reverse=True):
            moved += size * min(count, left)
            left -= min(count, left)
        return self.bytes_in_stages - moved

    def extended(self, deeper: Sequence[Kept], more: Sequence[int]) -> Kept:
        """Return what is kept with ``more[i]`` times what ``deeper[i]`` keeps in addition."""
        gradients = self.gradient_bytes
        sizes = Counter(self.sizes)
        for other, count in zip(deeper, more, strict=True):
            gradients += count * (other.gradient_bytes - self.gradient_bytes)
            for size in {**self.sizes, **other.sizes}:
                sizes[size] += count * (other.sizes.get(size, 0) - self.sizes.get(size, 0))
        return Kept({size: max(count, 0) for size, count in sizes.items()}, gradients)


def _phase(program: Program, value: int) -> str:
    producer = program.producer[value]
    return "" if producer < 0 else phase_of(program.nodes[producer].op)


def _needed(program: Program) -> list[int]:
    """Return the numbers of the nodes that the step's results depend on."""
    wanted, found = set(program.returns), list[int]()
    for number in reversed(range(len(program.nodes))):
        node = program.nodes[number]
        if not wanted.isdisjoint(node.results):
            wanted.update(node.operands)
            found.append(number)
    return found


def _owners(program: Program) -> list[int | None]:
    """Return, for each value, the value whose memory it uses; None where that is not known."""
    owner: list[int | None] = list(range(len(program.values)))
    for node in program.nodes:
        if node.spec.target in VIEWS:
            owner[node.results[0]] = owner[node.operands[0]]
        elif _may_share(node):
            for value in node.results:
                owner[value] = None
    return owner


def _may_share(node: Node) -> bool:
    target = node.spec.target
    return target.startswith("dist.") or may_share(overload(target))


def _parameters(program: Program) -> dict[str, int]:
    """Return name -> value of each parameter."""
    keys = zip(program.argument_keys(), program.arguments, strict=True)
    return {name: value for (role, name), value in keys if role == "param"}


def _graded(op: ir.Operation) -> Iterable[str]:
    """Return the parameters whose gradients an op makes."""
    for name, _ in observed(op):
        for prefix in GRADIENTS:
            if name.startswith(prefix):
                yield name.removeprefix(prefix)
