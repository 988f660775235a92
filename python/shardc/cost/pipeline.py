"""What stages of a pipeline cost. Time in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class StageCost:
    """What one micro-batch costs in one stage. ``transfer_s``: sending its activation on, or the gradient
    back. ``activation_bytes`` are held from forward on; of them ``weight_bytes`` from the input gradient
    until the weight gradient, and the rest not.
    """

    forward_s: float
    input_gradient_s: float
    weight_gradient_s: float
    transfer_s: float = 0.0
    activation_bytes: float = 1.0
    weight_bytes: float = 0.0

    def seconds(self, kind: str) -> float:
        """The time of one action."""
        inputs, weights = self.input_gradient_s, self.weight_gradient_s
        return {"F": self.forward_s, "B": inputs + weights, "I": inputs, "W": weights}[kind]

    def held_bytes(self, kind: str) -> tuple[float, float]:
        """What an action adds when it starts, and when it ends."""
        held, weights = self.activation_bytes, self.weight_bytes
        ends = {"F": 0.0, "B": -held, "I": weights - held, "W": -weights}
        return held if kind == "F" else 0.0, ends[kind]


def merge_stages(costs: Sequence[StageCost], stages: int) -> list[StageCost]:
    """Costs of ``stages`` stages, each of as many of those of ``costs``, which ``stages`` must divide."""
    each, rest = divmod(len(costs), stages)
    if rest:
        raise ValueError(f"{len(costs)} stages cannot be merged into {stages}")
    return [_merged(costs[first : first + each]) for first in range(0, len(costs), each)]


def _merged(costs: Sequence[StageCost]) -> StageCost:
    added = {f.name: sum(getattr(cost, f.name) for cost in costs) for f in fields(StageCost)}
    return StageCost(**{**added, "transfer_s": costs[-1].transfer_s})
