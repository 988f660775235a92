"""What stages of a pipeline cost. Time in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class StageCost:
    """What one micro-batch costs in one stage. ``transfer_s``: sending its activation on, or the gradient
    back. ``activation_bytes`` are held from forward on; of them ``weight_bytes`` from the input gradient
    until the weight gradient, and the rest not. ``state_bytes`` are held all the time. ``backward_s``: of a
    backward that is run whole; that of both its parts if not given.
    """

    forward_s: float
    input_gradient_s: float
    weight_gradient_s: float
    transfer_s: float = 0.0
    activation_bytes: float = 1.0
    weight_bytes: float = 0.0
    state_bytes: float = 0.0
    backward_s: float | None = None

    def seconds(self, kind: str) -> float:
        """The time of one action."""
        inputs, weights = self.input_gradient_s, self.weight_gradient_s
        whole = inputs + weights if self.backward_s is None else self.backward_s
        return {"F": self.forward_s, "B": whole, "I": inputs, "W": weights}[kind]

    def held_bytes(self, kind: str) -> tuple[float, float]:
        """What an action adds when it starts, and when it ends."""
        held, weights = self.activation_bytes, self.weight_bytes
        ends = {"F": 0.0, "B": -held, "I": weights - held, "W": -weights}
        return held if kind == "F" else 0.0, ends[kind]

    def faster(self, times: float) -> StageCost:
        """The same on a device that computes so many times as fast."""
        names = ("forward_s", "input_gradient_s", "weight_gradient_s", "backward_s")
        return replace(self, **{n: s / times for n in names if (s := getattr(self, n)) is not None})


def merge_stages(costs: Sequence[StageCost], stages: int) -> list[StageCost]:
    """Costs of ``stages`` stages, each of as many of those of ``costs``, which ``stages`` must divide."""
    each, rest = divmod(len(costs), stages)
    if rest:
        raise ValueError(f"{len(costs)} stages cannot be merged into {stages}")
    return [_merged(costs[first : first + each]) for first in range(0, len(costs), each)]


def _merged(costs: Sequence[StageCost]) -> StageCost:
    names = [f.name for f in fields(StageCost) if f.name != "backward_s"]
    added = {name: sum(getattr(cost, name) for cost in costs) for name in names}
    is_split = all(cost.backward_s is None for cost in costs)
    whole_s = None if is_split else sum(cost.seconds("B") for cost in costs)
    return StageCost(**{**added, "transfer_s": costs[-1].transfer_s}, backward_s=whole_s)
