"""Costs of pipeline stages. Times in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class StageCost:
    """Cost of one micro-batch in one stage.

    Attributes:
        transfer_s: Time of sending its activation on, or the gradient back.
        activation_bytes: Bytes held from the forward on.
        weight_bytes: Share of ``activation_bytes`` held from the input gradient until the weight gradient;
            the rest is freed at the input gradient.
        state_bytes: Bytes held all the time.
        backward_s: Time of a backward that runs whole. Default: that of both of its parts.
        eviction_s: Time of sending a micro-batch's activations to the rank that keeps them, and of sending
            them back.
        slices: Costs of each slice of sequences, if a schedule slices them; this is then that of the first.
    """

    forward_s: float
    input_gradient_s: float
    weight_gradient_s: float
    transfer_s: float = 0.0
    activation_bytes: float = 1.0
    weight_bytes: float = 0.0
    state_bytes: float = 0.0
    backward_s: float | None = None
    eviction_s: float = 0.0
    slices: tuple[StageCost, ...] = ()

    def of(self, micro_batch: int) -> StageCost:
        """Return the cost of a micro-batch, or of a slice that counts as one."""
        return self.slices[micro_batch % len(self.slices)] if self.slices else self

    def seconds(self, kind: str) -> float:
        """Return the time of one action."""
        inputs, weights = self.input_gradient_s, self.weight_gradient_s
        whole = inputs + weights if self.backward_s is None else self.backward_s
        return {"F": self.forward_s, "B": whole, "I": inputs, "W": weights}[kind]

    def held_bytes(self, kind: str) -> tuple[float, float]:
        """Return the bytes that an action adds when it starts, and when it ends."""
        held, weights = self.activation_bytes, self.weight_bytes
        ends = {"F": 0.0, "B": -held, "I": weights - held, "W": -weights}
        return held if kind == "F" else 0.0, ends[kind]

    def faster(self, times: float) -> StageCost:
        """Return the cost on a device that computes ``times`` times as fast."""
        names = ("forward_s", "input_gradient_s", "weight_gradient_s", "backward_s")
        slices = tuple(part.faster(times) for part in self.slices)
        faster_s = {n: s / times for n in names if (s := getattr(self, n)) is not None}
        return replace(self, **faster_s, slices=slices)


def merge_stages(costs: Sequence[StageCost], stages: int) -> list[StageCost]:
    """Merge costs into those of ``stages`` equal groups; ``stages`` must divide their number."""
    each, rest = divmod(len(costs), stages)
    if rest:
        raise ValueError(f"{len(costs)} stages cannot be merged into {stages}")
    return [_merged(costs[first : first + each]) for first in range(0, len(costs), each)]


def _merged(costs: Sequence[StageCost]) -> StageCost:
    names = [f.name for f in fields(StageCost) if f.name not in ("backward_s", "slices")]
    added = {name: sum(getattr(cost, name) for cost in costs) for name in names}
    is_split = all(cost.backward_s is None for cost in costs)
    whole_s = None if is_split else sum(cost.seconds("B") for cost in costs)
    return StageCost(**{**added, "transfer_s": costs[-1].transfer_s}, backward_s=whole_s)
