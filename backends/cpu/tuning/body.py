"""Kernel's loops as seen by cost models: the loops that ``backends/cpu`` generates for a configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from torch_mlir import ir

from shardc.backends.body.graph import Argument, Graph, Value
from shardc.backends.body.roots import Reads, Root, Roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import width_bytes
from shardc.backends.cpu.emit.nests import Nest
from shardc.backends.cpu.emit.result import Result, results_of
from shardc.backends.cpu.emit.row import fetches
from shardc.backends.cpu.emit.stages import Loop, Stages, cost, find_stages, work_of
from shardc.backends.cpu.emit.streams import streams_of
from shardc.dialects.kern.size import hint


def made_once(graph: Graph) -> dict[Value, int]:
    """Return initial costs: single-element values (Adam's corrections) are computed outside of all loops."""
    return {value: 0 for value in graph.computed if hint(prod(value.shape)) == 1}


def _bytes(values: Iterable[Value]) -> int:
    """Return the total bytes of tensors."""
    return sum(hint(prod(v.shape)) * width_bytes(v.element) for v in values)


@dataclass(frozen=True)
class Pass:
    """Loop inside a row.

    ``elements``: its length. Per element: ``work`` in additions, and bytes of arguments (``read``), of values
    stored for later stages (``kept``) and of results (``written``). ``sums``: reductions that end with it.
    ``ahead``: True if it prefetches the next row. ``streamed``: bytes per element of non-temporal stores.
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
    """Nest of a kernel. ``module`` owns the IR that the other fields refer to."""

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
        """Number of elements of all carried sums."""
        carried = [r for r in self.nest.roots if self.nest.carried(r)]
        return sum(hint(result.count) for r in carried for result in results_of(r))

    @cached_property
    def item(self) -> int:
        """Bytes of the widest element that it reads or computes."""
        held = [v.element for r in self.nest.roots for v, _ in self.reads[r].ends]
        held += [r.value.element for r in self.nest.roots if r.value is not None]
        return max(map(width_bytes, held), default=4)

    @cached_property
    def held(self) -> int:
        """Bytes of all tensors that it reads."""
        return _bytes(dict.fromkeys(v for r in self.nest.roots for v, _ in self.reads[r].ends))

    @cached_property
    def written(self) -> int:
        """Bytes of all results that it writes."""
        return _bytes(r.value for r in self.nest.roots if r.value is not None)

    @cached_property
    def work(self) -> int:
        """Work of the whole kernel, in additions."""
        return hint(work_of(self.roots))

    def stages(self, config: Config) -> Stages:
        return find_stages(self.nest, self.roots, self.reads, config)

    def shape(self, config: Config) -> object:
        """Return a key of what a configuration decides. Equal keys give the same machine code."""
        stages, nest = self.stages(config), self.nest
        streams = self._streams(stages, config)
        found = tuple(
            (tuple(loop.kept), self._fetches(loop, config), tuple(streams.get(loop, ())))
            for loop in stages.loops
        )
        piece = config.piece if any(ahead or far for _, ahead, far in found) else 0
        part = 0
        if self.is_carried:
            part = config.block if nest.split else config.rows
        elif nest.transposed:
            part = config.tile
        return found, tuple(stages.again), piece, part

    def _streams(self, stages: Stages, config: Config) -> dict[Loop, list[Root]]:
        return streams_of(self.nest, stages, self.graph, self.later, config.streamed_bytes)

    def _fetches(self, loop: Loop, config: Config) -> bool:
        return not self.nest.split and not self.nest.transposed and fetches(self.nest, loop, config.piece)

    def passes(self, config: Config) -> list[Pass]:
        """Return the loops of a row, in order."""
        key = (config.recompute_cost, config.far_bytes, config.streamed_bytes, config.piece)
        if key not in self._known:
            self._known[key] = self._passes(config)
        return self._known[key]

    def _passes(self, config: Config) -> list[Pass]:
        stages = self.stages(config)
        streams = self._streams(stages, config)
        found: list[Pass] = []
        kept: set[object] = set(stages.again)
        known = made_once(self.graph)
        for loop in stages.loops:
            elements = hint(prod(self.nest.sizes[a] for a in loop.axes))
            read = {
                v: width_bytes(v.element)
                for r in loop.roots
                for v, i in self.reads[r].ends
                # Values that do not depend on the row's loop are read once.
                if isinstance(v, Argument)
                and (i is None or any(a in loop.axes for position in i for a in position.axes))
            }
            again = {key for r in loop.roots for key in self.reads[r].between if key in kept}
            stored = [Result(r) for r in loop.roots if not r.is_reduction]
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
                    sum(width_bytes(r.element) for r in stored if r.root not in far),
                    sum(r.is_reduction for r in loop.roots),
                    self._fetches(loop, config),
                    sum(width_bytes(r.element) for r in map(Result, far)),
                )
            )
        return found

    def threads(self, config: Config, most: int) -> int:
        """Return the number of threads that share the kernel."""
        return max(1, min(most, self.work // config.work_per_thread))
