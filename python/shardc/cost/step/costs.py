"""Conversion of a step's work to seconds, by a device's rates, links, and the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from shardc.cost.ops import DeviceRates, attention_s, other_flops_s, pass_s, product_s
from shardc.cost.step.streams import Placed, Played, Task, place, play
from shardc.cost.step.work import Item, Section

OPTIMIZER = "optimizer"
"""Phase of the update, and the cause of its time."""


def no_transfer(size_bytes: float) -> float:
    """Return 0 seconds, for steps that send nothing."""
    return 0.0


@dataclass(frozen=True)
class Costs:
    """Rates and functions that convert work to seconds.

    Args:
        rates: Rates of a device.
        collective_s: Seconds of a collective.
        transfer_s: Seconds of sending so many bytes to the next stage.
        call_s: Seconds of the host for each kernel.
        action_s: Seconds of the host around each forward and backward of a pipeline's micro-batch.
        overlap: Whether kernels run during transfers, and during collectives until their results are needed.
        ranks: Costs on each rank of a pipeline whose ranks have several kinds of device; empty otherwise.
    """

    rates: DeviceRates
    collective_s: Callable[[Item], float]
    transfer_s: Callable[[float], float] = no_transfer
    call_s: float = 0.0
    action_s: float = 0.0
    overlap: bool = True
    ranks: tuple[Costs, ...] = ()

    def of_rank(self, rank: int) -> Costs:
        """Return the costs on a pipeline's rank."""
        return self.ranks[rank] if self.ranks else self

    def seconds(self, item: Item) -> float:
        """Return the seconds of an item alone."""
        if item.kind == "collective":
            return self.collective_s(item)
        if item.product is not None:
            return product_s(item.product, self.rates)
        if item.kind == "attention":
            backward = item.phase == "backward"
            return attention_s(
                item.computed_flops, item.moved_bytes, item.element_bytes, backward, self.rates
            )
        if item.kind == "matmul":
            return other_flops_s(item.flops, item.moved_bytes, item.element_bytes, self.rates)
        return pass_s(item.moved_bytes, item.is_plain, self.rates)

    def play(self, items: Sequence[Item]) -> Played:
        """Simulate items on a device's streams, without the host."""
        return play([self._task(item) for item in items], overlap=self.overlap)

    def place(self, items: Sequence[Item]) -> list[Placed]:
        """Return when each item runs on a device's streams."""
        return place([self._task(item) for item in items], overlap=self.overlap)

    def play_sections(self, sections: Iterable[Section]) -> Played:
        """Simulate sections in sequence, each launched by a host that may be slower than the device."""
        played = (self.play(section.items).with_host(self.call_s) * section.times for section in sections)
        return reduce(Played.__add__, played, Played())

    def _task(self, item: Item) -> Task:
        """Return the task of an item; the host makes one call for it, as for a kernel."""
        axes = tuple(axis.name for axis in item.axes)
        kind = OPTIMIZER if item.phase == OPTIMIZER else item.kind
        return Task(kind, self.seconds(item), item.needs, axes, min(1, item.calls))
