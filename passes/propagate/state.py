"""State of propagation: the sharding of every value, and its origin."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from shardc.dialects.dist.sharding import Sharding
from shardc.dialects.rules.rule import Rule
from shardc.passes.manager.program import Program, carried_values, same_rule
from shardc.passes.propagate.step import propagate_through

_Step = tuple[tuple[int, ...], tuple[int, ...], int]
"""A call's values, the numbers of their shardings before the call was processed, and the call's number."""


_PRODUCTS = ("aten.bmm", "aten.matmul")
"""Products of [..., rows, terms] and [..., terms, columns]."""


class PropagationState:
    """A sharding for each value of a program, propagated to a fixed point by :meth:`run`.

    ``origin[v]`` is the number of the node that a value's sharding came through; -1 if it was set, or is
    empty. ``priority[(v, axis name)]`` is the round in which a value got an axis.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._table: list[Sharding] = []
        self._numbers: dict[Sharding, int] = {}
        self._names: dict[int, frozenset[str]] = {}
        self._memo: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        ranks = [len(t.shape) for t in program.types]
        empty = {rank: self._number(Sharding(((),) * rank, (), (True,) * rank)) for rank in set(ranks)}
        self._now = [empty[rank] for rank in ranks]
        self.origin = [-1] * len(program.types)
        self._taken: dict[tuple[int, str], _Step] = {}
        self.priority: dict[tuple[int, str], int] = {}
        self._steps = self._make_steps()

    def sharding(self, value: int) -> Sharding:
        return self._table[self._now[value]]

    def set(self, value: int, sharding: Sharding, priority: int = 0) -> None:
        """Set a value's sharding, as an annotation does."""
        self._note(value, sharding, priority)
        self._now[value] = self._number(sharding)
        self.origin[value] = -1

    def came(self, value: int, axis: str) -> tuple[int, int] | None:
        """Return the value and the node from which a value got an axis; None if it was set.

        The node is -1 if the two values are an argument and the result that replaces it.
        """
        if (value, axis) not in self._taken:
            return None
        values, before, node = self._taken[value, axis]
        had = (v for v, number in zip(values, before, strict=True) if axis in self._axes(number))
        return next(had), node

    def snapshot(self) -> list[int]:
        return list(self._now)

    def restore(self, snapshot: list[int]) -> None:
        self._now = snapshot

    def run(self, changed: Iterable[int], priority: int = 0) -> list[int]:
        """Propagate from ``changed`` values to a fixed point. Return the values that changed, in order."""
        touched: list[int] = []
        queue = deque(dict.fromkeys(s for v in changed for s in self._steps_of[v]))
        late: deque[int] = deque()
        waiting = set(queue)
        while queue or late:
            is_late = not queue
            step = late.popleft() if is_late else queue.popleft()
            waiting.discard(step)
            rule, values, node = self._steps[step]
            if not is_late and self._waits_for_rows(node, values):
                late.append(step)
                continue
            before = tuple(self._now[v] for v in values)
            if (id(rule), before) not in self._memo:
                self._memo[id(rule), before] = self._work_out(rule, before)
            after = self._memo[id(rule), before]
            for value, old, new in zip(values, before, after, strict=True):
                if old == new or self._now[value] == new:
                    continue
                self._note(value, self._table[new], priority)
                self._now[value] = new
                self.origin[value] = node
                for axis in self._axes(new) - self._axes(old):
                    self._taken.setdefault((value, axis), (values, before, node))
                touched.append(value)
                for other in self._steps_of[value]:
                    if other != step and other not in waiting:
                        waiting.add(other)
                        queue.append(other)
        return touched

    def _waits_for_rows(self, node: int, values: tuple[int, ...]) -> bool:
        """Return whether a product of activations gets axes for rows or columns of one tensor only.

        In attention such tensors are keys, values, and their gradients. Queries offer the rows of the result,
        and are often computed last.
        """
        if node < 0 or self.program.nodes[node].spec.target not in _PRODUCTS:
            return False
        left, right, made = (self.sharding(v).dims for v in values)
        if min(len(left), len(right)) < 3 or any(left[-2:]):
            return False
        return any(right[-2:]) != any(made[-2:])

    def _work_out(self, rule: Rule, numbers: tuple[int, ...]) -> tuple[int, ...]:
        found = propagate_through(rule, tuple(self._table[n] for n in numbers))
        return tuple(self._number(s) for s in found)

    def _axes(self, number: int) -> frozenset[str]:
        """Return the names of the axes of a sharding, given its number."""
        if number not in self._names:
            self._names[number] = frozenset(axis.name for axis in self._table[number].used)
        return self._names[number]

    def _number(self, sharding: Sharding) -> int:
        if sharding not in self._numbers:
            self._numbers[sharding] = len(self._table)
            self._table.append(sharding)
        return self._numbers[sharding]

    def _note(self, value: int, sharding: Sharding, priority: int) -> None:
        if priority:
            before = {a.name for a in self.sharding(value).used}
            for axis in sharding.used:
                if axis.name not in before:
                    self.priority[value, axis.name] = priority

    def _make_steps(self) -> list[tuple[Rule, tuple[int, ...], int]]:
        """Return (rule, values, node) for each call, and for each argument that a result replaces."""
        steps = [(n.rule, n.values, number) for number, n in enumerate(self.program.nodes)]
        same: dict[tuple[int, ...], Rule] = {}
        for argument, result in carried_values(self.program):
            type_ = self.program.types[argument]
            steps.append((same.setdefault(type_.shape, same_rule(type_)), (argument, result), -1))
        self._steps_of: list[list[int]] = [[] for _ in self.program.types]
        for number, (_, values, _) in enumerate(steps):
            for value in dict.fromkeys(values):
                self._steps_of[value].append(number)
        return steps
