"""What stages add to a step whose search takes them as equally long and joined without messages."""

from __future__ import annotations

from collections.abc import Callable

from shardc.cost.cluster.cluster import Cluster
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.auto.pipelines.messages import Messages
from shardc.planning.auto.pipelines.unevenness import Unevenness
from shardc.planning.auto.space import Choice


def added_by_stages(step: StepGraph, choice: Choice, cluster: Cluster) -> Callable[[Choice], float]:
    """Return the seconds that stages add to a choice. ``step``: the graph of one ``choice``."""
    messages, uneven = Messages.of(step, cluster), Unevenness.of(step, choice)
    return lambda choice: messages.seconds(choice) + uneven.seconds(choice)
