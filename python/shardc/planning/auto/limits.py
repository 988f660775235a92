"""Parts of a search's choices that a user fixes or limits, and which of these leave no choice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import gcd, prod

from shardc.options.parallelism import LIMITS
from shardc.options.presets import BATCH
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import PIPE


@dataclass(frozen=True)
class Fixed:
    """What a user fixes or limits; None: left to the search.

    ``tensor``: the most devices over which a stage may shard anything but the batch in forward and backward.
    ``stages``: the most stages of a pipeline; 1 for none.
    """

    micro_batches: int | None = None
    schedule: object = None
    balance_activations: object = None
    tensor: int | None = None
    stages: int | None = None

    @property
    def given(self) -> list[str]:
        """Names of the parts that are not left to the search."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def only(self, names: Sequence[str]) -> Fixed:
        """Return these parts alone."""
        return Fixed(**{name: getattr(self, name) for name in names})

    def text(self, names: Sequence[str]) -> str:
        """Return parts with their values, as the options that the user gave."""
        shown = (f"search_limits of {name}" if name in LIMITS else name for name in names)
        return " and ".join(f"{what} {getattr(self, n)}" for what, n in zip(shown, names, strict=True))

    def within(self, choice: Choice, samples: int) -> Choice | None:
        """Return the choice with a mesh that keeps to the limits, or None if there is none.

        Axes beyond the limit are joined to an outermost axis that shards the batch alone.
        """
        if self.stages is not None and choice.stages > self.stages:
            return None
        inner, left = list[tuple[str, int]](), self.tensor or prod(choice.mesh.values())
        for axis, size in reversed([item for item in choice.axes if item[0] != PIPE]):
            taken = gcd(size, left) if size > left else size
            left //= taken
            inner += [(axis, taken)] if taken > 1 else []
        stages = [item for item in choice.axes if item[0] == PIPE]
        batch = prod(choice.mesh.values()) // prod(size for _, size in (*inner, *stages))
        if batch == 1:
            return choice
        if (samples // choice.micro_batches) % batch:
            return None
        return replace(choice, axes=(*stages, (BATCH, batch), *reversed(inner)))


def contradiction(names: Sequence[str], leaves_some: Callable[[Sequence[str]], bool]) -> Sequence[str]:
    """Return the fewest of ``names`` that together leave no choice.

    ``leaves_some``: whether some of them leave a choice; it is False for all of them.
    """
    sets = (of for count in range(1, len(names) + 1) for of in itertools.combinations(names, count))
    return next((of for of in sets if not leaves_some(of)), names)
