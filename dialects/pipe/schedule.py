"""Pipeline schedules as data: one ordered list of actions per rank."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from shardc.dialects.pipe.action import Action

Orders = tuple[tuple[Action, ...], ...]


class Updates(NamedTuple):
    """When the stages of an asynchronous pipeline update their weights: each by itself, while other
    micro-batches are in flight.

    ``every``: behind the gradients of so many micro-batches, a group. ``delay``: forward of group g takes the
    weights that group ``g - 1 - delay`` left, on every stage (PipeDream-2BW: 1); None: the newest that the
    stage has (PipeDream). A micro-batch's backward takes those of its forward. See ``weight_versions.py``.
    """

    every: int
    delay: int | None = None


@dataclass(frozen=True)
class Schedule:
    """What each rank does, in order. A rank waits for what its next action needs.

    ``routes``: the stages that a micro-batch goes through, in order; micro-batch m takes
    ``routes[m % len(routes)]``. One route is a pipeline; two that share no stage are a bidirectional one
    (Chimera), whose stages hold the same parameters twice. ``slices``: a sequence of tokens is cut into so
    many, one after the other among the micro-batches (TeraPipe): forward of a slice needs that of the slice
    before it in the same stage, whose keys it attends to, and backward the other way. ``updates``: None where
    weights change once, behind all micro-batches, as on one device.
    """

    name: str
    orders: Orders
    routes: tuple[tuple[int, ...], ...]
    slices: int = 1
    updates: Updates | None = None

    @property
    def changes_mathematics(self) -> bool:
        """Whether a step is another function than on one device: older gradients update newer weights."""
        return self.updates is not None

    @property
    def ranks(self) -> int:
        return len(self.orders)

    @cached_property
    def stages(self) -> int:
        """How many stages there are, numbered from 0."""
        return 1 + max(max(route) for route in self.routes)

    @cached_property
    def micro_batches(self) -> int:
        """How many micro-batches there are; each slice of a sequence counts."""
        return 1 + max((action.micro_batch for action in self.actions()), default=-1)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """Stage -> the rank that holds it: the one with the stage's first action."""
        found: dict[int, int] = {}
        for rank, order in enumerate(self.orders):
            for action in order:
                found.setdefault(action.stage, rank)
        return found

    def actions(self) -> Iterator[Action]:
        """All of them, rank by rank."""
        for order in self.orders:
            yield from order

    def route(self, micro_batch: int) -> tuple[int, ...]:
        """The stages that a micro-batch goes through."""
        return self.routes[micro_batch % len(self.routes)]

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, order)) for order in self.orders)


def one_route(stages: int) -> tuple[tuple[int, ...], ...]:
    """Every micro-batch through all stages."""
    return (tuple(range(stages)),)


def orders(ranks: Iterable[Sequence[Action]]) -> Orders:
    """Lists of actions as a schedule holds them."""
    return tuple(tuple(rank) for rank in ranks)
