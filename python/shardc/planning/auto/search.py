"""``shardc.search_plan``: mesh, stages, micro-batches, recomputation and cuts for a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path

import torch

from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.passes.search import NotSearched
from shardc.options.field import options_of
from shardc.options.parallelism import Parallelism
from shardc.options.recompute import Policy
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.planning.auto.fit import Picked, search_to_fit
from shardc.planning.auto.report import searched
from shardc.planning.auto.space import RECOMPUTED, choices
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price, Priced
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of
from shardc.planning.verdict import verdict
from shardc.runtime.report import progress
from shardc.step.modules.recomputed import repeated_layers


@dataclass(frozen=True)
class SearchedPlan:
    """What :func:`search_plan` picked.

    ``options`` are those of ``compile_step`` for it: ``mesh``, ``plan``, ``micro_batches``, ``recompute`` and
    ``cluster``. Its text says what a step takes and holds, and what else was looked at, with a bound on all.
    """

    options: Mapping[str, object]
    picked: Picked
    price: Price
    question: Question

    @property
    def seconds(self) -> float:
        """Of a step, by the cost model."""
        return self.price.time.seconds

    @property
    def peak_bytes(self) -> int:
        """Of the fullest device."""
        return self.price.priced.fullest.peak_bytes

    def __str__(self) -> str:
        return "\n\n".join((verdict(self.question, self.price), "\n".join(searched(self.picked.around))))


def search_plan(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    example_batch: object,
    *,
    cluster: str | Path | Cluster,
    loss: Callable[..., torch.Tensor] | None = None,
    micro_batches: int | None = None,
    recompute: str | None = None,
    search_seconds: float | None = None,
) -> SearchedPlan:
    """Search how a training step is spread over a cluster: before a run, on any machine.

    Ctrl-C ends the search with the best plan that it found so far; a second one is KeyboardInterrupt.

    Example::

        found = shardc.search_plan(model, optimizer, batch, cluster="h100-8x8")
        print(found)
        step = shardc.compile_step(model, optimizer, batch, **found.options)

    Args:
        model: Any ``nn.Module``, real or on the meta device. It is looked at with fewer of its equal layers.
        optimizer: One of ``torch.optim``, on the model's parameters.
        example_batch: The global batch, as of ``compile_step``.
        cluster: A cluster's name, its file, or a ``Cluster``; all of its devices are used.
        loss: As of ``compile_step``.
        micro_batches, recompute: Fixes these parts of the choice: a number, and ``none``, ``selective`` or
            ``full``.
        search_seconds: When the search ends with the best plan so far, counted from the end of
            the capture. Default: no other choice is looked at after 30 s. The plan is compiled afterwards.

    Raises:
        NoPlanFound where no plan fits, NoPlanYet where the search was ended too early, BadArgument,
        NotSearched, UnknownCluster, and what a capture raises.
    """
    of = cluster_of(cluster)
    name, tokens = type(model).__name__, tokens_of(example_batch)
    question = Question(name, model, optimizer, example_batch, loss, tokens)
    pricer = Pricer(question, cluster=of)
    picked = search_around_cuts(pricer, of, micro_batches, recompute, pricer.price, search_seconds)
    candidate = picked.priced.candidate
    options = {
        "mesh": dict(candidate.mesh),
        "plan": candidate.plan,
        "micro_batches": candidate.micro_batches,
        "recompute": candidate.recompute or "none",
        "cluster": pricer.cluster_of(candidate),
    }
    return SearchedPlan(options, picked, picked.priced.on(of), question)


def search_around_cuts(
    pricer: Pricer,
    cluster: Cluster,
    micro_batches: int | None,
    recompute: object,
    price: Callable[[Candidate], Priced],
    search_seconds: float | None = None,
) -> Picked:
    """The best plan for a question on all devices of a cluster. ``price``: what a plan costs, compiled.
    ``search_seconds``: when the search ends with the best so far; the first Ctrl-C does so, too.

    Raises BadArgument, NoPlanFound, NoPlanYet, NotSearched.
    """
    question = pricer.question
    policies = policies_of(question.model, recompute)
    given = list(choices(cluster, question.samples, question.layers, policies, micro_batches))
    options_of(Parallelism)["search_seconds"].check(search_seconds, "compile_step")
    if given:
        pricer.look(given[0].candidate)
    clock = Clock(inf if search_seconds is None else search_seconds, hears=True)
    with clock.running():
        return search_to_fit(given, partial(_found, pricer, clock), price, cluster, clock)


def policies_of(model: torch.nn.Module, recompute: object) -> Sequence[Policy]:
    """What may be computed again. Raises NotSearched."""
    if recompute in RECOMPUTED:
        return [RECOMPUTED[RECOMPUTED.index(recompute)]]
    if recompute is not None:
        raise NotSearched(option="recompute of single modules")
    return RECOMPUTED if any(True for _ in repeated_layers(model)) else RECOMPUTED[:1]


def _found(pricer: Pricer, clock: Clock, candidate: Candidate, cutoff_s: float) -> Found | Unfit:
    progress.step(candidate.text)
    return pricer.found(candidate, cutoff_s, clock)
