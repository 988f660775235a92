"""Prices of two and of three periods of equal layers, and what they foretell of a deeper model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardc.planning.depth.blend import Blend, NotAffine
from shardc.planning.depth.shallow import Periods
from shardc.planning.price import Priced

FEW, MORE = 2, 3
"""Periods of equal layers: of the shallow program, and of one stretch of a deeper one."""
TOLERANCE = 1e-3
"""By how much of itself a foretold number may be off."""


@dataclass(frozen=True)
class Few:
    """``shallow``: with :data:`FEW` periods of each stretch; each of ``deeper`` has :data:`MORE` of one."""

    shallow: Priced
    deeper: Sequence[Priced]

    def of(self, periods: Periods) -> Priced:
        """The price of a model of so many periods. Raises NotAffine."""
        more = (count - FEW for run in periods for count in run)
        return blended(self.shallow, self.deeper, Blend(tuple(n // (MORE - FEW) for n in more)))

    def check(self, found: Priced, periods: Periods) -> None:
        """Compare with the price of a model that was compiled. Raises NotAffine."""
        if problem := difference(self.of(periods), found):
            raise NotAffine(problem)


def blended(shallow: Priced, deeper: Sequence[Priced], blend: Blend) -> Priced:
    """The price of a model with more layers. ``deeper``: with a period more of one stretch each."""
    memory = [
        blend.memory(rank, [other.memory[n] for other in deeper]) for n, rank in enumerate(shallow.memory)
    ]
    seconds = {}
    for priced in (shallow, *deeper):
        for name, taken in priced.seconds.items():
            seconds[name] = seconds.get(name, 0.0) + taken
    return replace(
        shallow,
        memory=memory,
        work=blend.work(shallow.work, [other.work for other in deeper]),
        transfers=blend.transfers(shallow.transfers, [other.transfers for other in deeper]),
        seconds=seconds,
        deeper=[other.step for other in deeper],
        blend=blend,
    )


def difference(foretold: Priced, found: Priced) -> str:
    """Which number was foretold wrongly, in words; empty if none was."""
    numbers = {
        "bytes at the peak": lambda priced: priced.fullest.peak_bytes,
        "bytes of state": lambda priced: priced.fullest.state_bytes,
        "operations": lambda priced: sum(work.flops for work in priced.work.own),
        "bytes of passes over memory": lambda priced: sum(work.bytes_moved for work in priced.work.own),
        "bytes sent": lambda priced: sum(priced.sent.values()),
    }
    for name, number in numbers.items():
        expected, real = number(foretold), number(found)
        if abs(expected - real) > TOLERANCE * max(real, 1):
            return f"{name} are not affine in the number of layers ({expected:.6g} for {real:.6g})"
    return ""
