"""What turns the work of a step into seconds: a device's rates, links, and the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from shardc.cost.ops import DeviceRates, attention_s, other_flops_s, pass_s, product_s
from shardc.cost.step.streams import Placed, Played, Task, place, play
from shardc.cost.step.work import Item, Section

OPTIMIZER = "optimizer"
"""The phase of the update, and the cause of its time."""


def no_transfer(size_bytes: float) -> float:
    """Seconds of sending where nothing is sent."""
    return 0.0


@dataclass(frozen=True)
class Costs:
    """What turns work into seconds.

    Args:
        rates: Of a device.
        collective_s: Seconds of a collective.
        transfer_s: Seconds of sending so many bytes to the next stage.
        call_s: Seconds of the host for each kernel.
        action_s: Seconds of the host around each forward and backward of a pipeline's micro-batch.
        overlap: Whether kernels go on beside transfers, and beside collectives until these are waited for.
    """

    rates: DeviceRates
    collective_s: Callable[[Item], float]
    transfer_s: Callable[[float], float] = no_transfer
    call_s: float = 0.0
    action_s: float = 0.0
    overlap: bool = True

    def seconds(self, item: Item) -> float:
        """Seconds of an item by itself."""
        if item.kind == "collective":
            return self.collective_s(item)
        if item.product is not None:
            return product_s(item.product, self.rates)
        if item.kind == "attention":
            backward = item.phase == "backward"
            return attention_s(item.flops, item.moved_bytes, item.element_bytes, backward, self.rates)
        if item.kind == "matmul":
            return other_flops_s(item.flops, item.moved_bytes, item.element_bytes, self.rates)
        return pass_s(item.moved_bytes, item.is_plain, self.rates)

    def play(self, items: Sequence[Item]) -> Played:
        """Items on a device's streams, without the host."""
        return play([self._task(item) for item in items], overlap=self.overlap)

    def place(self, items: Sequence[Item]) -> list[Placed]:
        """When each item runs on a device's streams."""
        return place([self._task(item) for item in items], overlap=self.overlap)

    def play_sections(self, sections: Iterable[Section]) -> Played:
        """Sections one after the other, each by a host that may be behind."""
        played = (self.play(section.items).with_host(self.call_s) * section.times for section in sections)
        return reduce(Played.__add__, played, Played())

    def _task(self, item: Item) -> Task:
        """The host makes one call for it, as of a kernel."""
        axes = tuple(axis.name for axis in item.axes)
        kind = OPTIMIZER if item.phase == OPTIMIZER else item.kind
        return Task(kind, self.seconds(item), item.needs, axes, min(1, item.calls))
