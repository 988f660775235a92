"""Limits that a user sets on the choices of a search, and which of a user's options leave no choice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TypeVar

from shardc.options.presets import BATCH
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import PIPE

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Limits on choices; None: no limit.

    ``tensor``: the most devices over which a stage may shard anything but the batch in forward and backward.
    ``stages``: the most stages of a pipeline; 1 for none.
    """

    tensor: int | None = None
    stages: int | None = None

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


def contradiction(given: Mapping[str, T], leaves_some: Callable[[Mapping[str, T]], bool]) -> Sequence[str]:
    """Return the smallest set of options that together leave no choice, by name.

    ``leaves_some``: whether some of the options leave a choice; it is False for all of them.
    """
    names = list(given)
    sets = (of for count in range(1, len(names) + 1) for of in itertools.combinations(names, count))
    return next((of for of in sets if not leaves_some({name: given[name] for name in of})), names)
