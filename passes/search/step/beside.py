"""Calls that run beside the sums of a value over devices."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.passes.search.step.facts import StepFacts, Use

_DIGITS = 9
"""Decimals of seconds, so that equal layers have equal changes."""


class Beside:
    """Time of calls that hides sums over devices, if each call is split in its fastest way.

    If a call takes longer than that, more is hidden, but not more than it takes longer.
    """

    def __init__(self, facts: StepFacts) -> None:
        self._facts = facts
        self._until: list[float] = [0.0]
        """Least seconds of all calls before each call."""

    def add(self, seconds: float) -> None:
        """Add the next call, with its least seconds."""
        self._until.append(self._until[-1] + seconds)

    def seconds(self, value: int, uses: Sequence[Use]) -> float:
        """Return the least seconds of the calls between a value's call and the first that reads it.

        0 if these two have different phases. Such calls are the gradient of a weight after that of an input.
        """
        made, first = self._facts.program.producer[value], min(node for node, _ in uses)
        if made < 0 or self._facts.phases[made] != self._facts.phases[first]:
            return 0.0
        return round(max(0.0, self._until[first] - self._until[made + 1]), _DIGITS)
