"""A kernel's loops as the models of costs see them: what ``backends/cpu`` would write under a
configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from torch_mlir import ir

from shardc.backends.body.graph import Argument, Graph, Value
from shardc.backends.body.roots import Reads, Root, Roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import count_of, width_bytes
from shardc.backends.cpu.emit.nests import Nest
from shardc.backends.cpu.emit.row import fetches
from shardc.backends.cpu.emit.stages import Loop, Stages, cost, find_stages, work_of
from shardc.backends.cpu.emit.streams import streams_of
from shardc.dialects.kern.size import hint


def made_once(graph: Graph) -> dict[Value, int]:
    """Costs to begin with: values of one element are made once, outside of all loops (the corrections of an
    Adam, with their powers).
    """
    return {value: 0 for value in graph.computed if hint(count_of(value.shape)) == 1}


@dataclass(frozen=True)
class Pass:
    """One loop inside a row: ``elements`` of it, additions for each; bytes of arguments, of what is kept and
    of results that each reads and writes; ``sums`` that end with it; ``ahead``: it fetches what the next row
    reads; ``streamed``: bytes of an element's results that go past the caches.
    """

    elements: int
    work: int
    read: int
    kept: int
    written: int
    sums: int
    ahead: bool
    streamed: int


@dataclass(eq=False)
class Loops:
    """One nest of a kernel. ``module`` owns the IR that the rest looks at."""

    module: ir.Module
    nest: Nest
    roots: Roots
    reads: dict[Root, Reads]
    later: set[Root]
    graph: Graph
    _known: dict[tuple[int, ...], list[Pass]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return hint(prod(self.nest.sizes[a] for a in self.nest.rows))

    @cached_property
    def is_carried(self) -> bool:
        return any(self.nest.carried(r) for r in self.nest.roots)

    @cached_property
    def sums(self) -> int:
        """Elements of all carried sums."""
        carried = [r for r in self.nest.roots if self.nest.carried(r)]
        return hint(sum(count_of(r.result_shape(n)) for r in carried for n in range(r.result_count())))

    @cached_property
    def item(self) -> int:
        """Bytes of the widest element that it reads or makes."""
        held = [v.element for r in self.nest.roots for v, _ in self.reads[r].ends]
        held += [r.value.element for r in self.nest.roots if r.value is not None]
        return max(map(width_bytes, held), default=4)

    @cached_property
    def held(self) -> int:
        """Bytes of all tensors that it reads."""
        ends = dict.fromkeys(v for r in self.nest.roots for v, _ in self.reads[r].ends)
        return sum(hint(count_of(v.shape)) * width_bytes(v.element) for v in ends)

    @cached_property
    def written(self) -> int:
        """Bytes of all results that it writes."""
        made = [r.value for r in self.nest.roots if r.value is not None]
        return sum(hint(count_of(v.shape)) * width_bytes(v.element) for v in made)

    @cached_property
    def work(self) -> int:
        """Additions of the whole kernel."""
        return hint(work_of(self.roots))

    def stages(self, config: Config) -> Stages:
        return find_stages(self.nest, self.roots, self.reads, config)

    def shape(self, config: Config) -> object:
        """What a configuration decides: equal shapes are the same machine code."""
        stages, nest = self.stages(config), self.nest
        streams = streams_of(nest, stages, self.graph, self.later, config.streamed_bytes)
        loops = [loop for stage in stages.stages for loop in stage]
        said = [
            (tuple(loop.kept), self._fetches(loop, config), tuple(streams.get(loop, ()))) for loop in loops
        ]
        piece = config.piece if any(ahead or far for _, ahead, far in said) else 0
        part = 0
        if self.is_carried:
            part = config.block if nest.split else config.rows
        elif nest.transposed:
            part = config.tile
        return tuple(said), tuple(stages.again), piece, part

    def _fetches(self, loop: Loop, config: Config) -> bool:
        return not self.nest.split and not self.nest.transposed and fetches(self.nest, loop, config.piece)

    def passes(self, config: Config) -> list[Pass]:
        """The loops of a row, in order."""
        key = (config.recompute_cost, config.far_bytes, config.streamed_bytes, config.piece)
        if key not in self._known:
            self._known[key] = self._passes(config)
        return self._known[key]

    def _passes(self, config: Config) -> list[Pass]:
        stages, nest = self.stages(config), self.nest
        streams = streams_of(nest, stages, self.graph, self.later, config.streamed_bytes)
        found: list[Pass] = []
        kept: set[object] = set(stages.again)
        known = made_once(self.graph)
        for loop in (loop for stage in stages.stages for loop in stage):
            elements = hint(prod(nest.sizes[a] for a in loop.axes))
            read = {
                v: width_bytes(v.element)
                for r in loop.roots
                for v, i in self.reads[r].ends
                if isinstance(v, Argument) and self._changes(i, loop)
            }
            again = {key for r in loop.roots for key in self.reads[r].between if key in kept}
            stored = [r for r in loop.roots if not r.is_reduction]
            far = streams.get(loop, ())
            made = {v: cost(v, self.roots, known) for r in loop.roots for v, _ in r.read()}
            saved = sum(cost(v, self.roots, known) for v, _ in again)
            kept |= set(loop.kept)
            found.append(
                Pass(
                    elements,
                    max(1, sum(made.values()) + len(loop.roots) - saved),
                    sum(read.values()),
                    sum(width_bytes(v.element) for v, _ in (*again, *loop.kept)),
                    sum(width_bytes(r.value.element) for r in stored if r not in far),
                    sum(r.is_reduction for r in loop.roots),
                    self._fetches(loop, config),
                    sum(width_bytes(r.value.element) for r in far),
                )
            )
        return found

    def _changes(self, index: object, loop: Loop) -> bool:
        """Whether a read moves along with a loop of the row: what does not is read once."""
        return index is None or any(a in loop.axes for position in index for a in position.axes)

    def threads(self, config: Config, most: int) -> int:
        """That share it."""
        return max(1, min(most, self.work // config.work_per_thread))
