"""Messages between stages, as a lower bound on what they add to a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.step.on_cluster import costs_on
from shardc.passes.search.calls.crossing import crossing
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import PIPE


@dataclass(frozen=True)
class Messages:
    """Messages of a step's pipelines on a cluster.

    ``crossing``: for each cut of the forward, the part of its work before it, and the bytes of the whole
    batch to send.
    """

    crossing: Sequence[tuple[float, float]]
    cluster: Cluster

    @staticmethod
    def of(step: StepGraph, cluster: Cluster) -> Messages:
        """Return the messages of a step, from any of its graphs."""
        return Messages(crossing(step.program, step.folded.weights), cluster)

    def seconds(self, choice: Choice) -> float:
        """Return what messages add to a step at least.

        A stage has at least half of an equal share of the work, and no device sends more than its share of
        the cut with the fewest bytes. Where stages are no chain, what crosses a cut need not be one message,
        and nothing is counted.
        """
        if choice.stages == 1 or choice.form.path < 1:
            return 0.0
        margin = 0.5 / (choice.stages * choice.form.per_rank)
        sizes = (size for part, size in self.crossing if margin <= part <= 1 - margin)
        senders = choice.micro_batches * prod(choice.mesh.values()) / choice.stages
        costs = costs_on(self.cluster, choice.mesh, PIPE)
        count = choice.form.sends(choice.stages, choice.micro_batches)
        return count * costs.transfer_s(min(sizes, default=0.0) / senders)
