"""``shardc.search_plan``: mesh, stages, micro-batches, recomputation and cuts for a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.cluster import Cluster
from shardc.options.recompute import Recompute
from shardc.planning.auto.choose import Around
from shardc.planning.auto.front import front_of
from shardc.planning.auto.kept import Answer
from shardc.planning.auto.report import searched
from shardc.planning.auto.searches import Searches
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of


@dataclass(frozen=True)
class FrontPoint:
    """Point of the memory-time front: the options of ``compile_step`` for a plan, and the plan's price."""

    options: Mapping[str, object]
    price: Price


@dataclass(frozen=True)
class SearchedPlan:
    """Plan that :func:`shardc.search_plan` picked.

    Pass ``options`` to ``compile_step``: ``mesh``, ``plan``, ``micro_batches``, ``recompute``, ``cluster``,
    and ``schedule`` and ``stages`` of a pipeline that is not 1F1B. Printing the plan shows the time and
    memory of a step, the other choices that were tried, and a bound on all choices.

    Example:
        >>> found = shardc.search_plan(model, optimizer, batch, loss=loss, cluster="h100-2")
        >>> sorted(found.options)
        ['cluster', 'mesh', 'micro_batches', 'plan', 'recompute']
    """

    options: Mapping[str, object]
    answer: Answer
    searches: Searches = field(repr=False, compare=False)

    def front(self) -> Sequence[FrontPoint]:
        """Search the fastest plans for less and less memory, starting from this one. Each takes a search."""
        found = front_of(self.searches, self.searches.picked(self.answer))
        return [FrontPoint(_options(self.searches.pricer, p.priced.candidate), p) for p in found.points]

    def options_of(self, candidate: Candidate) -> Mapping[str, object]:
        """Return the options of ``compile_step`` for ``candidate``, another plan of the same question."""
        return _options(self.searches.pricer, candidate)

    @property
    def candidate(self) -> Candidate:
        """Mesh, plan, micro-batches, schedule and recomputation."""
        return self.answer.candidate

    @property
    def around(self) -> Around:
        """Choices that were tried, and the bound on all choices."""
        return self.answer.around

    @property
    def seconds(self) -> float:
        """Seconds of a step, by the cost model."""
        return self.answer.seconds

    @property
    def peak_bytes(self) -> int:
        """Peak memory of the fullest device, in bytes."""
        return self.answer.peak_bytes

    @property
    def searched(self) -> list[str]:
        """Lines on the choices that were tried."""
        return searched(self.around)

    def __str__(self) -> str:
        return "\n\n".join((self.answer.verdict, "\n".join(self.searched)))


def search_plan(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    example_batch: object,
    *,
    cluster: str | Path | Cluster,
    loss: Callable[..., torch.Tensor] | None = None,
    micro_batches: int | None = None,
    recompute: Recompute | None = None,
    autocast: str | None = None,
    search_seconds: float | None = None,
    search_limits: Mapping[str, int] | None = None,
) -> SearchedPlan:
    """Search the fastest plan of a training step for a cluster, before a run and on any machine.

    Ctrl-C ends the search with the best plan so far; a second Ctrl-C raises KeyboardInterrupt.

    Args:
        model: Any ``nn.Module``, real or on the meta device. The search captures only a few of its equal
            layers.
        optimizer: Optimizer of the model's parameters, from ``torch.optim``.
        example_batch: The global batch, as in :func:`shardc.compile_step`.
        cluster: A cluster's name such as ``"h100-8x8"`` (8 nodes of 8), its YAML file, or a ``Cluster``; all
            of its devices are used.
        loss: As in ``compile_step``.
        micro_batches: Number of micro-batches. Default: searched.
        recompute: What backward recomputes: ``"none"``, ``"selective"`` or ``"full"``. Default: searched.
        autocast: ``"bfloat16"`` or ``"float16"``. Default: the dtypes of the model.
        search_seconds: Seconds, from the end of the capture, after which the search ends with the best plan
            so far. Default: after 60 s the search starts no other choice. Compiling the plan comes on top.
        search_limits: The most devices over which anything but the batch is sharded (``"tensor"``), and the
            most stages (``"stages"``). Default: no limits.

    Returns:
        The plan, with ``options`` for ``compile_step`` and a report as its text.

    Raises:
        NoPlanFound: No plan fits into the devices' memory.
        ContradictingLimits: The fixed options leave no choice.
        NoPlanYet: The search ended before it had found a plan.
        BadArgument, NotSearched, UnknownCluster: An argument is wrong, or the search does not support it.

    Example:
        >>> found = shardc.search_plan(model, optimizer, batch, loss=loss, cluster="h100-2")
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, **found.options)
    """
    of = cluster_of(cluster)
    name, tokens = type(model).__name__, tokens_of(example_batch)
    question = Question(name, model, optimizer, example_batch, loss, tokens)
    searches = Searches(
        Pricer(question, autocast, of), of, micro_batches, recompute, search_seconds, search_limits
    )
    answer = searches.answer()
    return SearchedPlan(_options(searches.pricer, answer.candidate), answer, searches)


def _options(pricer: Pricer, candidate: Candidate) -> Mapping[str, object]:
    """Return the options of ``compile_step`` for a plan."""
    return {"recompute": "none", **candidate.options, "cluster": pricer.programs.cluster_of(candidate)}
