"""How the storage that a plan needs of a few parameters spreads to all values that share their dims."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from shardc.dialects.dist.interleaving import Parts
from shardc.dialects.roles import STATE_ROLES
from shardc.dialects.rules.rule import Dim
from shardc.passes.interleave.moves import Move, read_move
from shardc.passes.manager.program import Node, Program, carried_values
from shardc.passes.pad.call import placed_factors

Layout = dict[int, Parts]
"""The dims of a value that are stored as parts; none, for most values."""


@dataclass(frozen=True)
class CallLayouts:
    """What a call reads and makes, and the move that it then is of parts of a dim,
    stored as ``whole`` in the large tensor.
    """

    operands: list[Layout]
    results: list[Layout]
    move: Move | None = None
    whole: Parts | None = None


class Spread:
    """The layout of every value, driven to a fixed point from ``seeds``. A dim keeps the first that it is
    given.
    """

    def __init__(self, program: Program, seeds: Mapping[int, Layout]) -> None:
        self._program = program
        self._now: list[Layout] = [{} for _ in program.types]
        keys = [program.argument_key(i) for i in range(len(program.arguments))]
        self._plain = {
            v for v, (role, _) in zip(program.arguments, keys, strict=True) if role not in STATE_ROLES
        }
        named = {name: v for (role, name), v in zip(keys, program.arguments, strict=True) if role == "param"}
        same = carried_values(program)
        for value, parameter in _gradients(program):
            if parameter in named:
                same.append((named[parameter], value))
            else:
                self._plain.add(value)
        self._same: dict[int, list[int]] = {}
        for a, b in same:
            self._same.setdefault(a, []).append(b)
            self._same.setdefault(b, []).append(a)
        for value, layout in seeds.items():
            self._now[value] = dict(layout)
        self._run(list(seeds))

    def layout(self, value: int) -> Layout:
        return self._now[value]

    def of_call(self, number: int) -> CallLayouts:
        node = self._program.nodes[number]
        factors = self._factors(node)
        operands, results = (
            [
                {d: factors[dim[0]] for d, dim in enumerate(dims) if len(dim) == 1 and dim[0] in factors}
                for dims in tensors
            ]
            for tensors in (node.rule.operands, node.rule.results)
        )
        move = read_move(node)
        large = None if move is None else (node.operands if move.takes else node.results)[0]
        whole = None if move is None or large is None else self._now[large].get(move.dim)
        parts = None if move is None or whole is None else move.parts(whole)
        if move is None or whole is None or parts is None:
            return CallLayouts(operands, results)
        big, small = (operands, results) if move.takes else (results, operands)
        big[0][move.dim] = whole
        for layout, part in zip(small, parts, strict=True):
            if len(part.sizes) > 1:
                layout[move.dim] = part
        return CallLayouts(operands, results, move, whole)

    def _factors(self, node: Node) -> dict[str, Parts]:
        """The factors of a call that are stored as parts: such as it does the same with,
        wherever their elements stand.
        """
        found: dict[str, Parts] = {}
        tensors = (*node.rule.operands, *node.rule.results)
        for dims, value in zip(tensors, (*node.operands, *node.results), strict=True):
            for d, parts in self._now[value].items():
                if len(dims[d]) == 1:
                    found.setdefault(dims[d][0], parts)
        if not found or not node.known:
            return {}
        fixed = node.rule.replicate | placed_factors(node.spec) | _joined(tensors)
        return {f: parts for f, parts in found.items() if f not in fixed}

    def _run(self, changed: list[int]) -> None:
        producer, users = self._program.producer, self._program.users
        queue = deque(changed)
        while queue:
            value = queue.popleft()
            queue.extend(other for other in self._same.get(value, ()) if self._take(other, self._now[value]))
            for number in (*users[value], *([producer[value]] if producer[value] >= 0 else [])):
                node, found = self._program.nodes[number], self.of_call(number)
                layouts = zip((*node.operands, *node.results), (*found.operands, *found.results), strict=True)
                queue.extend(v for v, layout in layouts if self._take(v, layout))

    def _take(self, value: int, layout: Layout) -> bool:
        """Give a value what it has not; whether it took anything. One dim at most: edges can say no more."""
        if not layout or self._now[value] or value in self._plain:
            return False
        self._now[value] = dict(list(layout.items())[:1])
        return True


def _gradients(program: Program) -> list[tuple[int, str]]:
    """The values with a name, which somebody looks at, and the parameter of which each is the gradient
    (empty: of none).
    """
    found = []
    for node in program.nodes:
        if "dist.name" in node.op.attributes:
            for text in node.op.attributes["dist.name"].value.split(","):
                name, _, index = text.partition("#")
                kind, _, parameter = name.partition(":")
                found.append((node.results[int(index or 0)], parameter if kind == "grad" else ""))
    return found


def _joined(tensors: tuple[tuple[Dim, ...], ...]) -> set[str]:
    """The factors that are with others in some dim: their elements do not lie in that dim as they do in one
    of their own.
    """
    return {f for dims in tensors for dim in dims if len(dim) > 1 for f in dim}
