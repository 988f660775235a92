"""Forward of a deep model from those of two shallow ones, and its cuts in a model with fewer equal layers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, pairwise

from shardc.passes.pipeline.cuts.balance import Forward
from shardc.passes.pipeline.cuts.towers import Run


@dataclass(frozen=True)
class Repeated:
    """Forward in which the ops ``start`` to ``end`` repeat: each costs what the op ``period`` later costs."""

    forward: Forward
    period: int
    start: int
    end: int

    def runs(self, deeper: Forward) -> list[Run]:
        """Return the equal layers of ``deeper``, of which this forward has more."""
        layers = (len(self.forward.ops) - len(deeper.ops)) // self.period
        end = self.end - layers * self.period
        work = sum(deeper.work[self.start : self.start + self.period])
        return [Run(self.start, end, layers * work)]

    @classmethod
    def between(cls, shallow: Forward, deeper: Forward, more: int) -> Repeated | None:
        """Return the forward of a model with ``more`` layers than ``shallow``'s. ``deeper`` has one more.

        None if the two do not differ by one layer that repeats.
        """
        first, longer = _rows(shallow), _rows(deeper)
        period = len(longer) - len(first)
        at = next((n for n, (a, b) in enumerate(zip(first, longer, strict=False)) if a != b), len(first))
        if period <= 0 or longer[at + period :] != first[at:]:
            return None
        forward = _joined(shallow, deeper, at, period, more)
        rows = _rows(forward)
        start, end = at, at + more * period
        while start and rows[start - 1] == rows[start - 1 + period]:
            start -= 1
        while end < len(rows) and rows[end] == rows[end - period]:
            end += 1
        return cls(forward, period, start, end)

    def left_out(self, cuts: Sequence[int], kept: int) -> list[int]:
        """Return how many layers each stage can leave out, if it keeps ``kept`` whole ones.

        ``cuts``: numbers of the ops before which the forward is cut.
        """
        stages = pairwise([0, *cuts, len(self.forward.ops)])
        whole = [(min(end, self.end) - max(start, self.start)) // self.period for start, end in stages]
        return [max(0, count - kept) for count in whole]

    def moved(self, cuts: Sequence[int], left_out: Sequence[int]) -> list[int]:
        """Return the cuts of a model whose stages have so many layers fewer."""
        gone = accumulate(left_out)
        return [cut - layers * self.period for cut, layers in zip(cuts, gone, strict=False)]

    def is_shortened(self, shorter: Forward, layers: int) -> bool:
        """Return whether ``shorter`` is this forward with so many layers fewer."""
        rows = _rows(self.forward)
        return _rows(shorter) == rows[: self.start] + rows[self.start + layers * self.period :]


def _rows(forward: Forward) -> list[tuple[float, int]]:
    """Return the work of each op, and the bytes to send if the forward is cut before it."""
    return list(zip(forward.work, forward.crossing, strict=False))


def _joined(shallow: Forward, deeper: Forward, at: int, period: int, more: int) -> Forward:
    """Return ``shallow`` with the ops that ``deeper`` has at ``at`` inserted ``more`` times."""
    whole = copy(shallow)
    whole.ops = shallow.ops[:at] + deeper.ops[at : at + period] * more + shallow.ops[at:]
    whole.work = shallow.work[:at] + deeper.work[at : at + period] * more + shallow.work[at:]
    whole.crossing = shallow.crossing[:at] + deeper.crossing[at : at + period] * more + shallow.crossing[at:]
    whole.cost = [0.0, *accumulate(whole.work)]
    whole.sources = []  # ops of layers that no program has read no others
    return whole
