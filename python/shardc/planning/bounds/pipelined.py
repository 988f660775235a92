"""What the schedule 1F1B adds to the least of a plan: micro-batches in flight, and waiting."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from shardc.planning.candidates import Candidate


@dataclass(frozen=True)
class Shape:
    """Numbers of a plan: stages, micro-batches, and devices of a stage.

    ``is_known``: whether the schedule is 1F1B; another one has at least a micro-batch in flight.
    """

    stages: int
    micro_batches: int
    devices: int
    is_known: bool = True

    @classmethod
    def of(cls, candidate: Candidate, pipe: str, is_known: bool = True) -> Shape:
        """Return the numbers of a plan whose stages lie along the axis ``pipe``; empty without stages."""
        stages = candidate.mesh.get(pipe, 1)
        devices = prod(candidate.mesh.values()) // stages
        return cls(stages, candidate.micro_batches, devices, is_known)

    @property
    def in_flight(self) -> list[int]:
        """Micro-batches that each stage holds at most: min(p - s, m) in stage s of p, of m micro-batches."""
        if not self.is_known:
            return [1] * self.stages
        return [min(self.stages - s, self.micro_batches) for s in range(self.stages)]

    @property
    def has_sums(self) -> bool:
        """Whether each stage holds sums of gradients when it holds most micro-batches.

        Stage s fills up again after the first backward if there are more than p - s micro-batches.
        """
        return self.is_known and self.micro_batches > self.stages

    def fullest_bytes(self, lasting_bytes: float, kept_bytes: float) -> float:
        """Return the least bytes on a device of the fullest stage, however the model is cut into stages.

        Let n_s be the micro-batches in flight in stage s, k_s what it keeps of one, and P_s what it holds
        anyway. The sum of k_s is k, that of P_s is P, and the fullest stage needs B >= P_s + n_s k_s for each
        s. With w_s = max(1, c / n_s) for any c > 0, w_s B >= P_s + c k_s. The sum over stages gives
        B >= (P + c k) / (w_1 + ... + w_p). The best c is one of the n_s, or so large that P does not matter:
        k / (1 / n_1 + ... + 1 / n_p), a harmonic mean.

        Args:
            lasting_bytes: P, bytes of all stages' state and sums of gradients on a device of each.
            kept_bytes: k, bytes of activations of all stages for one micro-batch on a device of each.
        """
        counts = self.in_flight
        bounds = [kept_bytes / sum(1 / n for n in counts)]
        for c in set(counts):
            bounds.append((lasting_bytes + c * kept_bytes) / sum(max(1.0, c / n) for n in counts))
        return max(bounds)

    def step_s(self, part_s: float, backward_s: float) -> float:
        """Return the least seconds of a step, however the model is cut into stages.

        Let f_s and b_s be the seconds of stage s for a micro-batch, forward and backward, and f and b their
        sums over the stages. The first backward of stage s waits until the first micro-batch has passed the
        stages before it forward, and those behind it forward and back. By then the stage has run at most
        p - s forwards. Behind its last backward are those of the stages before it. So a step takes at least
        f + b + (m - 1) (f_s + b_s) - (p - s - 1) f_s. The mean over the stages is at least
        f + b + (m - 1) (f + b) / p - (p - 1) f / p = ((f + b) m + b (p - 1)) / p. It grows with f + b and
        with b, so lower bounds of both will do. Whatever the schedule is, a step takes no less than the mean
        of all stages' work.

        Args:
            part_s: f + b, seconds of all stages for one micro-batch on a device of each.
            backward_s: b, the part of backward.
        """
        waits = self.stages - 1 if self.is_known else 0
        return (part_s * self.micro_batches + backward_s * waits) / self.stages
