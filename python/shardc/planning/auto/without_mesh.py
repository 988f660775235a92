"""``plan="auto"`` without a mesh: a search picks it, for a cluster or for the processes that run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

import torch

from shardc.compiler.local_cluster import cluster_of, with_devices
from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.passes.search import NothingToSearchFor, NoTrials, NotSearched, SearchWithoutCluster
from shardc.environment import ELASTIC, RANK
from shardc.options.field import FrontEnd
from shardc.options.parallelism import ClusterLike, lacks_mesh, parallelism_of
from shardc.options.presets import is_searched
from shardc.options.step import StepOptions
from shardc.planning.auto.measured.trials import Subject, text_of, trials_asked, trials_of
from shardc.planning.auto.search import SearchedPlan, search_plan
from shardc.planning.candidates import DATA, Candidate
from shardc.runtime.report import progress
from shardc.runtime.report.logs import PLAN
from shardc.step.arguments import check_arguments, processes
from shardc.step.compile_step import CompiledStep
from shardc.step.compile_step import compile_step as compile_on_mesh

P = ParamSpec("P")


def _with_search(compile_: Callable[P, CompiledStep]) -> Callable[P, CompiledStep]:
    """Wrap ``compile_step`` so that a search fills in what ``plan="auto"`` leaves open."""
    signature = inspect.signature(compile_)

    @wraps(compile_)
    def compile_step(*args: P.args, **kwargs: P.kwargs) -> CompiledStep:
        if not lacks_mesh(kwargs):
            named = parallelism_of(kwargs)
            if is_searched(named.get("plan")):
                if named.get("search_trials") is not None:
                    raise NoTrials(problem="the mesh is given")
                if named.get("search_limits") is not None:
                    raise NotSearched(option="search_limits beside a mesh")
            return compile_(*args, **kwargs)
        bound = signature.bind(*args, **kwargs).arguments
        given = {**bound.pop("options", {}), **bound}
        model, optimizer, batch, loss, state = (given.pop(name, None) for name in ARGUMENTS)
        check_arguments({"model": model, "optimizer": optimizer, "loss": loss, "state": state})
        found = search_for(model, optimizer, batch, loss, given)
        subject = Subject(model, optimizer, batch, loss, state)
        picked, around = found.candidate, found.searched
        count = trials_asked(subject, parallelism_of(given))
        if trials := trials_of(found, count, lambda plan: subject.tried(given_with(given, found, plan))):
            picked, around = trials[0].candidate, [*around, *text_of(trials)]
        _tell(picked)
        options = given_with(given, found, picked)
        step = compile_on_mesh(model, optimizer, batch, loss=loss, state=state, **options)
        step.around = around
        return step

    return compile_step


ARGUMENTS = ("model", "optimizer", "example_batch", "loss", "state")
"""Arguments of ``compile_step`` other than options."""
SEARCH = ("search_trials", "search_limits")
"""Options that only a search without a mesh has."""
compile_step = _with_search(compile_on_mesh)


@progress.work("search")
def search_for(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    example_batch: object,
    loss: Callable[..., torch.Tensor] | None,
    given: Mapping[str, object],
    front_end: FrontEnd = "compile_step",
) -> SearchedPlan:
    """Search the plan for options ``given`` that have ``plan="auto"`` and no mesh.

    Raises NothingToSearchFor, SearchWithoutCluster, NotSearched, BadClusterSize, and what
    :func:`~shardc.planning.auto.search.search_plan` and wrong options raise.
    """
    options = StepOptions.of({**given, "mesh": {DATA: 1}}, front_end)
    parallelism, named = options.parallelism, parallelism_of(given)
    for name in ("constraints", "per_micro_batch"):
        if getattr(parallelism, name):
            raise NotSearched(option=f"{name} without a mesh")
    found = search_plan(
        model,
        optimizer,
        example_batch,
        cluster=_cluster(parallelism.cluster),
        loss=loss,
        micro_batches=parallelism.micro_batches if "micro_batches" in named else None,
        recompute=parallelism.recompute if "recompute" in named else None,
        autocast=options.numerics.autocast,
        search_seconds=parallelism.search_seconds,
        search_limits=parallelism.search_limits,
    )
    return found


def given_with(given: Mapping[str, object], found: SearchedPlan, plan: Candidate) -> dict[str, Any]:
    """Return the options ``given`` with those of a plan in place of ``plan="auto"`` and its search's."""
    dropped = SEARCH if is_searched(plan.plan) else (*SEARCH, "search_seconds")
    options, group = {**given, **found.options_of(plan)}, given.get("parallelism")
    if isinstance(group, Mapping):
        options["parallelism"] = {name: value for name, value in group.items() if name not in dropped}
    return {name: value for name, value in options.items() if name not in dropped}


def _tell(plan: Candidate) -> None:
    PLAN.info("%s", plan.text)
    if ELASTIC.get() and RANK.get() == "0":
        print(f"plan: {plan.text}", file=sys.stderr, flush=True)


def _cluster(given: ClusterLike | None) -> Cluster:
    """Return the given cluster with one device for each process; by default this machine, shared by all."""
    world = processes()
    if given is not None:
        return with_devices(cluster_of(given), world)
    if world is None:
        raise NothingToSearchFor(where="mesh=")
    if torch.cuda.is_available():
        raise SearchWithoutCluster()
    return cluster_of(f"local-{world}")
