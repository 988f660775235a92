"""Price of a deep model, predicted from the prices with two and three periods of equal layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardc.planning.depth.blend import Blend, NotAffine
from shardc.planning.depth.shallow import Periods
from shardc.planning.price import Priced

FEW, MORE = 2, 3
"""Periods of equal layers in the shallow program, and in one stretch of each deeper program."""
TOLERANCE = 1e-3
"""Relative tolerance of a predicted number."""


@dataclass(frozen=True)
class Few:
    """Prices of few layers.

    ``shallow``: the price with :data:`FEW` periods of each stretch. ``deeper``: for each stretch, the price
    with :data:`MORE` periods of that stretch.
    """

    shallow: Priced
    deeper: Sequence[Priced]

    def of(self, periods: Periods) -> Priced:
        """Predict the price of a model with these periods. Raises NotAffine."""
        more = (count - FEW for run in periods for count in run)
        return blended(self.shallow, self.deeper, Blend(tuple(n // (MORE - FEW) for n in more)))

    def check(self, found: Priced, periods: Periods) -> None:
        """Compare the prediction with the price of a compiled model. Raises NotAffine if they differ."""
        if problem := difference(self.of(periods), found):
            raise NotAffine(problem)


def blended(shallow: Priced, deeper: Sequence[Priced], blend: Blend) -> Priced:
    """Return the price of a model with more layers. Each of ``deeper`` has one more period of one stretch."""
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
    """Return text on a number that was predicted wrongly; empty if there is none."""
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
