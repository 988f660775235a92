"""Pipeline schedules as data: one ordered list of actions per rank."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.eviction import Eviction, Hold, evicted_holds, places
from shardc.dialects.pipe.stage_graph import Reads, StageGraph

Orders = tuple[tuple[Action, ...], ...]


class Updates(NamedTuple):
    """Weight updates of an asynchronous pipeline, in which each stage updates while micro-batches are in
    flight.

    ``every``: number of micro-batches in a group; a stage updates its weights after the gradients of each
    group. ``delay``: the forward of group g reads the weights that group ``g - 1 - delay`` left, on every
    stage (1 in PipeDream-2BW). None: it reads the newest weights of the stage (PipeDream). A micro-batch's
    backward reads the same weights as its forward. See ``weight_versions.py``.
    """

    every: int
    delay: int | None = None


@dataclass(frozen=True)
class Schedule:
    """The actions of each rank, in order. A rank waits for the dependences of its next action.

    ``routes``: the stages that a micro-batch passes, in order; micro-batch m takes ``routes[m %
    len(routes)]``. One route is a plain pipeline. Two routes that share no stage are a bidirectional pipeline
    (Chimera), which holds all parameters twice.

    ``slices``: the number of slices of each token sequence; each slice counts as a micro-batch (TeraPipe).
    The forward of a slice needs the forward of the previous slice in the same stage, since it attends to its
    keys; backward goes in reverse. ``lengths``: the tokens of each slice. Empty for slices that take equal
    time, by the cost model: the first are the longest, since later ones attend to more keys.

    ``updates`` is None if weights change once, after all micro-batches, as on one device.

    ``reads``: for each stage, the stages whose forward its forward reads, if they are no chain, such as two
    towers beside each other. Then there is one route, which lists all stages in order. Empty: a chain.

    ``evictions``: activations that a rank keeps for another one between forward and backward.
    """

    name: str
    orders: Orders
    routes: tuple[tuple[int, ...], ...]
    slices: int = 1
    updates: Updates | None = None
    lengths: tuple[int, ...] = ()
    reads: Reads = ()
    evictions: tuple[Eviction, ...] = ()

    @property
    def changes_mathematics(self) -> bool:
        """True if results differ from one device: gradients of older weights update newer ones."""
        return self.updates is not None

    @property
    def ranks(self) -> int:
        return len(self.orders)

    @cached_property
    def stages(self) -> int:
        """The number of stages; they are numbered from 0."""
        return 1 + max(max(route) for route in self.routes)

    @cached_property
    def micro_batches(self) -> int:
        """The number of micro-batches; each slice of a sequence counts as one."""
        return 1 + max((action.micro_batch for action in self.actions()), default=-1)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """Map each stage to the rank that holds it: the one with the stage's first action."""
        found: dict[int, int] = {}
        for rank, order in enumerate(self.orders):
            for action in order:
                found.setdefault(action.stage, rank)
        return found

    def actions(self) -> Iterator[Action]:
        """Yield all actions, rank by rank."""
        for order in self.orders:
            yield from order

    def part(self, micro_batch: int) -> float:
        """Return the part of a sequence that a micro-batch of the schedule has; 1 without slices."""
        if not self.lengths:
            return 1 / self.slices
        return self.lengths[micro_batch % self.slices] / sum(self.lengths)

    @cached_property
    def graph(self) -> StageGraph:
        """What each stage reads, by places in a route."""
        return StageGraph(self.reads) if self.reads else StageGraph.chain(len(self.routes[0]))

    def route(self, micro_batch: int) -> tuple[int, ...]:
        """Return the stages that a micro-batch passes, in order."""
        return self.routes[micro_batch % len(self.routes)]

    def holds(self) -> Iterator[Hold]:
        """Yield where activations are, by the numbers of their ranks' actions."""
        evicted = {(e.stage, e.micro_batch): e for e in self.evictions}
        for (stage, micro_batch), place in places(self.orders).items():
            rank = self.rank_of[stage]
            if eviction := evicted.get((stage, micro_batch)):
                yield from evicted_holds(eviction, rank, place)
            else:
                yield Hold(rank, stage, micro_batch, place[0], place[2])

    def __str__(self) -> str:
        return "\n".join([" ".join(map(str, order)) for order in self.orders] + [*map(str, self.evictions)])


def one_route(stages: int) -> tuple[tuple[int, ...], ...]:
    """Return the routes of a plain pipeline: every micro-batch passes all stages."""
    return (tuple(range(stages)),)


def orders(ranks: Iterable[Sequence[Action]]) -> Orders:
    """Convert lists of actions to the tuples that a schedule holds."""
    return tuple(tuple(rank) for rank in ranks)
