"""Calls of backward that only gradients of weights need: W of schedules that split the backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program
from shardc.passes.search.calls.repeats import repeats


def weight_calls(program: Program) -> frozenset[int]:
    """Return the calls of backward that no backward of an earlier call of forward needs.

    So it is for stages as short as possible, each a call of forward: ``passes/pipeline/stages`` splits a
    stage's backward by the same rule. Longer stages leave more calls to W, those of each first layer. Sums of
    gradients of one weight at several places are formed after all micro-batches.
    """
    return _Places(program).weights()


class _Places:
    """The number of the call of forward at which each call of backward runs: the last one that has all that
    it reads, and no later one than those of its gradients.
    """

    def __init__(self, program: Program) -> None:
        self._program, self._again = program, repeats(program)
        self._phase = [phase_of(node.op) for node in program.nodes]
        self._original = dict(self._originals(self._again))
        self._place: dict[int, int] = {}
        """Call of backward -> call of forward."""

    def weights(self) -> frozenset[int]:
        nodes, users, found, early = self._program.nodes, self._program.users, set[int](), set[int]()
        mine = [number for number, phase in enumerate(self._phase) if phase in ("backward", "recompute")]
        for number in mine:
            if self._phase[number] == "backward":
                self._place[number] = self._placed(number)
        for number in reversed(mine):
            place = self._place.get(number, -1)  # what is recomputed stays in its stage
            readers = {reader for value in nodes[number].results for reader in users[value]}
            readers -= {reader for reader in readers & found if self._is_sum(reader)}
            if any(reader in early or self._place.get(reader, place) < place for reader in readers):
                early.add(number)
            else:
                found.add(number)
        return frozenset(found)

    def _is_sum(self, number: int) -> bool:
        """Return whether a call is linear in all its operands together."""
        node = self._program.nodes[number]
        return any(len(places) == len(node.operands) > 1 for places in node.rule.linear)

    def _originals(self, again: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        nodes = self._program.nodes
        for number, first in again.items():
            yield from zip(nodes[number].results, nodes[first].results, strict=True)

    def _placed(self, number: int) -> int:
        operands = self._program.nodes[number].operands
        makers = (self._program.producer[value] for value in operands)
        latest = min(
            (self._place[maker] for maker in makers if maker in self._place), default=len(self._phase)
        )
        return min(
            (self._last(self._original.get(value, value), latest) for value in operands), default=latest
        )

    def _last(self, value: int, latest: int) -> int:
        """Return the last place up to ``latest`` that has a value of forward, or a parameter."""
        maker = self._program.producer[value]
        readers = [reader for reader in self._program.users[value] if self._phase[reader] == "forward"]
        if maker < 0:
            return max((reader for reader in readers if reader <= latest), default=latest)
        if self._phase[maker] != "forward":
            return latest
        return min(latest, max(readers, default=maker))
