"""Graph of a pipeline's stages: which earlier stages the forward of each stage reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

Reads = tuple[tuple[int, ...], ...]
"""For each stage, the earlier stages whose results its forward reads, in ascending order."""


@dataclass(frozen=True)
class StageGraph:
    """Stages, numbered in topological order, and what their forwards read. Backward goes the other way.

    A value for a stage that does not read its maker directly is passed on by the stages between them.
    """

    reads: Reads

    @staticmethod
    def chain(stages: int) -> StageGraph:
        """Return the graph in which each stage reads the one before it."""
        return StageGraph(tuple((stage - 1,) if stage else () for stage in range(stages)))

    @staticmethod
    def of(stages: int, edges: Iterable[tuple[int, int]]) -> StageGraph:
        """Return the graph with the fewest reads in which values reach their readers.

        ``edges``: pairs of a stage and a later one that needs its values. The result is their transitive
        reduction (Aho, Garey, Ullman 1972).
        """
        made = [set[int]() for _ in range(stages)]
        for maker, reader in edges:
            made[reader].add(maker)
        whole = StageGraph(tuple(tuple(sorted(found)) for found in made))
        between = [set[int]().union(*(whole.before[m] - {m} for m in found)) for found in made]
        return StageGraph(tuple(tuple(sorted(a - b)) for a, b in zip(made, between, strict=True)))

    @property
    def stages(self) -> int:
        return len(self.reads)

    @property
    def is_chain(self) -> bool:
        return self == StageGraph.chain(self.stages)

    @cached_property
    def before(self) -> tuple[frozenset[int], ...]:
        """For each stage, itself and all stages that its forward needs."""
        found = list[frozenset[int]]()
        for stage, reads in enumerate(self.reads):
            found.append(frozenset((stage,)).union(*(found[other] for other in reads)))
        return tuple(found)

    @cached_property
    def readers(self) -> Reads:
        """For each stage, the later stages that read it directly."""
        found = [list[int]() for _ in self.reads]
        for stage, reads in enumerate(self.reads):
            for other in reads:
                found[other].append(stage)
        return tuple(map(tuple, found))

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """For each stage, how many stages the longest path from it has after it."""
        found = [0] * self.stages
        for stage in reversed(range(self.stages)):
            found[stage] = max((1 + found[other] for other in self.readers[stage]), default=0)
        return tuple(found)

    def between(self, stages: Iterable[int]) -> frozenset[int]:
        """Return the stages, and those on paths between two of them: all that have a value that these
        use.
        """
        ends = set(stages)
        below = frozenset().union(*(self.before[stage] for stage in ends))
        return frozenset(stage for stage in below if not ends.isdisjoint(self.before[stage]))

    @property
    def longest(self) -> int:
        """The number of stages on the longest path."""
        return 1 + max(self.behind)

    def down(self, maker: int, reader: int) -> list[tuple[int, int]]:
        """Return the hops of a value of forward from ``maker`` to ``reader``, the last first."""
        hops = list[tuple[int, int]]()
        while reader != maker:
            source = max(other for other in self.reads[reader] if maker in self.before[other])
            hops.append((source, reader))
            reader = source
        return hops

    def up(self, maker: int, reader: int) -> list[tuple[int, int]]:
        """Return the hops of a value of backward from ``maker`` to the earlier stage ``reader``, the last
        first.
        """
        hops = list[tuple[int, int]]()
        while reader != maker:
            source = min(other for other in self.readers[reader] if other in self.before[maker])
            hops.append((source, reader))
            reader = source
        return hops
