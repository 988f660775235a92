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
    """A plan of the front of memory against time: the options of ``compile_step`` for it, and its price."""

    options: Mapping[str, object]
    price: Price


@dataclass(frozen=True)
class SearchedPlan:
    """Plan that :func:`shardc.search_plan` picked.

    ``options`` are those of ``compile_step`` for it: ``mesh``, ``plan``, ``micro_batches``, ``recompute`` and
    ``cluster``. Its text says what a step takes and holds, and what else was looked at, with a bound on all.

    Example:
        >>> found = shardc.search_plan(model, optimizer, batch, loss=loss, cluster="h100-2")
        >>> sorted(found.options)
        ['cluster', 'mesh', 'micro_batches', 'plan', 'recompute']
    """

    options: Mapping[str, object]
    answer: Answer
    searches: Searches = field(repr=False, compare=False)

    def front(self) -> Sequence[FrontPoint]:
        """Search the fastest plans for less and less memory, this one first: each takes a search."""
        found = front_of(self.searches, self.searches.picked(self.answer))
        return [FrontPoint(_options(self.searches.pricer, p.priced.candidate), p) for p in found.points]

    @property
    def candidate(self) -> Candidate:
        """Mesh, plan, micro-batches and what is computed again."""
        return self.answer.candidate

    @property
    def around(self) -> Around:
        """The choices that were looked at, and the bound on all."""
        return self.answer.around

    @property
    def seconds(self) -> float:
        """Seconds of a step, by the cost model."""
        return self.answer.seconds

    @property
    def peak_bytes(self) -> int:
        """Bytes that the fullest device holds at most."""
        return self.answer.peak_bytes

    @property
    def searched(self) -> list[str]:
        """Lines that say what was looked at."""
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
) -> SearchedPlan:
    """Search how a training step is spread over a cluster: before a run, on any machine.

    Ctrl-C ends the search with the best plan that it found so far; a second one is KeyboardInterrupt.

    Args:
        model: Any ``nn.Module``, real or on the meta device. It is looked at with fewer of its equal layers.
        optimizer: One of ``torch.optim``, on the model's parameters.
        example_batch: The global batch, as of :func:`shardc.compile_step`.
        cluster: A cluster's name such as ``"h100-8x8"`` (8 nodes of 8), its YAML file, or a ``Cluster``; all
            of its devices are used.
        loss: As of ``compile_step``.
        micro_batches: Fixes the number of micro-batches. Default: searched.
        recompute: Fixes what backward computes again: ``"none"``, ``"selective"`` or ``"full"``. Default:
            searched.
        autocast: ``"bfloat16"`` or ``"float16"``. Default: the dtypes of the model.
        search_seconds: Seconds from the end of the capture after which the search ends with the best plan so
            far. Default: no other choice is looked at after 30 s. The plan is compiled afterwards.

    Returns:
        The plan: ``options`` for ``compile_step``, and a report as its text.

    Raises:
        NoPlanFound: No plan fits into the devices' memory.
        NoPlanYet: The search was ended before it had found a plan.
        BadArgument, NotSearched, UnknownCluster: An argument cannot be honoured.

    Example:
        >>> found = shardc.search_plan(model, optimizer, batch, loss=loss, cluster="h100-2")
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, **found.options)
    """
    of = cluster_of(cluster)
    name, tokens = type(model).__name__, tokens_of(example_batch)
    question = Question(name, model, optimizer, example_batch, loss, tokens)
    searches = Searches(Pricer(question, autocast, of), of, micro_batches, recompute, search_seconds)
    answer = searches.answer()
    return SearchedPlan(_options(searches.pricer, answer.candidate), answer, searches)


def _options(pricer: Pricer, candidate: Candidate) -> Mapping[str, object]:
    """The options of ``compile_step`` for a plan that was found."""
    return {
        "mesh": dict(candidate.mesh),
        "plan": candidate.plan,
        "micro_batches": candidate.micro_batches,
        "recompute": candidate.recompute or "none",
        "cluster": pricer.cluster_of(candidate),
    }
