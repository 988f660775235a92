"""Prices of one question's plans. Models with many equal layers are priced from a few of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from math import inf, prod
from typing import cast

import torch

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.schedule_form import ONE_F_ONE_B
from shardc.diagnostics.base import ShardcError
from shardc.dialects.collection import collection_paused
from shardc.options.presets import is_searched
from shardc.options.step import StepOptions
from shardc.passes.manager.program import Program
from shardc.passes.search.answer.explain import Explain
from shardc.passes.search.choose import Found, Unfit, search
from shardc.passes.search.clock import Clock
from shardc.passes.search.dist_search import capacity_of, why_none
from shardc.passes.search.layered import LayeredCuts
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.beside import Asked, Beside
from shardc.planning.bounds.bound import Bound
from shardc.planning.bounds.bounds import Bounds
from shardc.planning.candidates import DATA, PIPE, Candidate, options_of
from shardc.planning.depth.blend import NotAffine
from shardc.planning.depth.fallback import log_whole, unless_refused
from shardc.planning.depth.few import FEW, Few
from shardc.planning.depth.pipelines import Pipelines
from shardc.planning.depth.shallow import Periods
from shardc.planning.graphs import Graphs, searched_options
from shardc.planning.offload import offloaded
from shardc.planning.price import Priced
from shardc.planning.programs import Programs
from shardc.planning.question import Question
from shardc.planning.versions import Versions
from shardc.step.schedule.form import schedule_form
from shardc.step.shard import ingest_capture
from shardc.workers.forked import can_fork

SINGLE = StepOptions.of({"mesh": {DATA: 1}}).parallelism
"""Options of a capture for all meshes."""
CHECKED = 4
"""Periods of equal layers in the program that checks the prediction from two and three of them."""

_Key = tuple[str, bool, str]
"""A plan's text, whether each layer is compiled, and the options."""
_Searched = tuple[LayeredCuts | None, Priced]
"""Result of the last search for a plan, and its price."""


class Pricer:
    """Prices of one question's plans, from :class:`Versions` of its model.

    ``cluster``: its links decide which collectives change a layout, as in ``compile_step``. Without one, the
    bytes that devices send decide. ``programs``: compiles of the question's plans, for the cluster.
    """

    def __init__(
        self, question: Question, autocast: str | None = None, cluster: Cluster | None = None
    ) -> None:
        self.versions = Versions(question, None if autocast is None else getattr(torch, autocast))
        self._bounds = Bounds(self.versions)
        self.programs = Programs(self.versions, cluster)
        self._pipelines = Pipelines(self.programs)
        self._is_checked = False
        self._graphs: Graphs | None = None
        self._beside: Beside | None = None
        self._searched: dict[_Key, _Searched] = {}

    @property
    def question(self) -> Question:
        return self.versions.question

    def on(self, cluster: Cluster) -> Pricer:
        """Return a pricer of the same question for another cluster, with the same captures."""
        other = copy(self)
        other.programs, other._graphs = replace(self.programs, cluster=cluster), None
        other._pipelines = Pipelines(other.programs)
        return other

    def price(
        self,
        candidate: Candidate,
        *,
        whole: bool = False,
        explain: Explain = "runners-up",
        **options: object,
    ) -> Priced:
        """Return the work of one plan, from which its costs follow.

        ``options``: other options of ``compile_step``. ``whole``: compile each layer. ``explain``: what to
        explain of a searched plan. Raises what a compile raises.
        """
        with collection_paused():
            candidate = _with_form(candidate, options)
            found = self._by_search(candidate, options, whole, explain)
            priced = found or self._priced(candidate, options, whole)
        return _with_offload(priced, options)

    def begin(self, candidates: Sequence[Candidate], *, whole: bool = False, **options: object) -> None:
        """Begin to price searched plans in children, for a later :meth:`price` within :meth:`beside`.

        Children that price other plans end.
        """
        if self._beside is None:
            return
        other, functions = copy(self), dict[Hashable, Callable[[], object]]()
        other._beside, other._searched = None, {}

        def priced(candidate: Candidate, key: _Key) -> _Searched | None:
            other.price(candidate, whole=whole, explain="plan", **options)
            return other._searched.get(key)

        for candidate in candidates:
            key = _key(_with_form(candidate, options), whole, options)
            functions[key] = partial(priced, candidate, key)
        self._beside.begin(functions)

    def _priced(self, candidate: Candidate, options: Mapping[str, object], whole: bool) -> Priced:
        """Return the price by few layers, or, if each layer must be compiled, by all."""
        found = None if whole else self._foretold(candidate, options)
        return found or self.programs.price(candidate, self.versions.whole, options)

    def _foretold(self, candidate: Candidate, options: Mapping[str, object]) -> Priced | None:
        """Predict the price from a few layers. Return None if each layer must be compiled.

        Each layer is compiled for saved plans, which treat equal layers differently, for plans whose search
        needs each layer, for named stages, and if costs are not affine in the number of layers.
        """
        is_by_name = not isinstance(options.get("recompute", "none"), str)
        is_by_name |= options.get("constraints") is not None
        is_by_name |= options.get("memory_budget") is not None  # the peak of all layers decides
        is_by_name |= candidate.plan.endswith(".json")
        is_by_name |= is_searched(candidate.plan) and not self.programs.layered
        if is_by_name or not self.versions.runs:
            return None
        if "pipeline" in candidate.plan:
            return self._pipelines.price(candidate, options)
        is_first, self._is_checked = not self._is_checked, True
        try:
            return self._few(candidate, options, is_checked=is_first).of(self.versions.whole)
        except NotAffine as error:
            log_whole(str(error))
        except ShardcError as error:
            if not is_first:
                raise
            # The whole model is compiled next, and raises its own errors.
            log_whole(next(iter(str(error).splitlines())))
        if is_first and self.programs.layered:
            self._is_checked = False  # other searched plans may be affine
        elif is_first:
            self.versions.runs = []
        return None

    def _by_search(
        self, candidate: Candidate, options: Mapping[str, object], whole: bool, explain: Explain
    ) -> Priced | None:
        """Search a plan on few layers, and price it. Return None if each layer must be part of the search.

        Raises NoPlanFound, NoPlanYet.
        """
        cluster, is_few = self.programs.cluster_of(candidate), bool(self.versions.searched()[1])
        if not is_searched(candidate.plan) or self.programs.layered or cluster is None or not is_few:
            return None
        clock = Clock(options_of(candidate, options).parallelism.search_seconds or inf, hears=True)
        with clock.running():
            found = self.found(candidate, clock=clock, explain=explain)
        if isinstance(found, Unfit):
            raise why_none(found, self._capacity_bytes(candidate), prod(candidate.mesh.values()))
        key = _key(candidate, whole, options)
        begun = None if self._beside is None else self._beside.take(key)
        before = cast("_Searched | None", begun) or self._searched.get(key)
        if before is None or before[0] != found.layered:
            other = copy(self)
            other.programs = replace(self.programs, layered=found.layered)
            other._pipelines = Pipelines(other.programs)
            priced = unless_refused(lambda: other._priced(candidate, options, whole))
            if priced is None:
                return None
            self._is_checked, before = other._is_checked, (found.layered, priced)
        self._searched[key] = before
        return replace(before[1], candidate=candidate, searched=found.answer)

    def found(
        self,
        candidate: Candidate,
        cutoff_s: float = inf,
        clock: Clock | None = None,
        *,
        explain: Explain = "",
    ) -> Found | Unfit:
        """Search the best plan for a candidate's mesh, on a few of the equal layers.

        ``cutoff_s``: seconds per step that a result must beat. ``clock``: time limit. ``explain``: what to
        explain of it. Raises what a capture raises.
        """
        capacity = self._capacity_bytes(candidate)
        graph, clock, graphs = self.graph(candidate), clock or Clock(), self._graphs_for(candidate)
        solved, key = graphs.solved, (candidate.text, capacity)
        kept = graphs.explained if explain == "runners-up" else {}
        if key in kept:
            return kept[key]
        found = search(
            graph, capacity, cutoff_s=cutoff_s, clock=clock, explain=explain, known=solved.get(key)
        )
        if isinstance(found, Found) and not clock.is_over:
            solved[key], kept[key] = found.solution, found
        return found

    def keep(self, candidate: Candidate, found: Found | Unfit) -> None:
        """Keep the result of a complete search by :meth:`found`, which another process did."""
        if not isinstance(found, Unfit):
            key = candidate.text, self._capacity_bytes(candidate)
            self._graphs_for(candidate).solved[key] = found.solution

    def read(self, candidate: Candidate) -> None:
        """Read a candidate's step, so that other processes can share it. Raises what a capture raises."""
        with collection_paused():
            self._graphs_for(candidate).read(candidate)

    def graph(self, candidate: Candidate) -> StepGraph:
        """Return the graph of choices for a candidate's mesh; the latest ones are kept.

        Raises what a capture raises.
        """
        with collection_paused():
            return self._graphs_for(candidate).of(candidate)

    def least_part(self, candidate: Candidate) -> float:
        """Return a lower bound of the part of a device's memory that a candidate's plans need.

        Raises what a capture raises.
        """
        with collection_paused():
            needed = self._graphs_for(candidate).least_bytes(candidate)
        return needed / self._capacity_bytes(candidate)

    def _capacity_bytes(self, candidate: Candidate) -> float:
        """Return the bytes of a device that a search for a candidate may use."""
        cluster = self.programs.cluster_of(candidate)
        assert cluster is not None, "searches are for a cluster"
        return capacity_of(cluster, candidate.mesh, PIPE if PIPE in candidate.mesh else "")

    def _graphs_for(self, candidate: Candidate) -> Graphs:
        cluster = self.programs.cluster_of(candidate)
        assert cluster is not None, "searches are for a cluster"
        self._graphs = self._graphs or Graphs(self.versions, cluster)
        return self._graphs

    def bound(self, candidate: Candidate, **options: object) -> Bound:
        """Return a lower bound of what a plan needs, without a compile of it.

        ``options``: other options of ``compile_step``, as in :meth:`price`. Raises what a capture raises.
        """
        chosen = options_of(candidate, options).parallelism
        return self._bounds.of(candidate, chosen, options, self.programs.cluster_of(candidate))

    def closer_bound(self, candidate: Candidate, **options: object) -> Bound | None:
        """Return a closer lower bound of a pipeline, from its program before it is cut into stages.

        Return None for other plans. Pricing the plan next takes that much less. Raises what a capture raises.
        """
        chosen = options_of(candidate, options).parallelism
        pipe, cluster = chosen.pipeline_axis(), self.programs.cluster_of(candidate)
        is_known = chosen.recompute == "none" and options.get("constraints") is None
        is_known &= not candidate.schedule and options.get("schedule") is None
        is_known &= not options.get("balance_activations")
        if not pipe or cluster is None or not is_known or chosen.shares is not None:
            return None
        with collection_paused():
            looked = self._pipelines.look(candidate, options)
        if looked is None:
            return None
        return self._bounds.of_uncut(candidate, chosen, options, cluster, looked)

    def least_state_bytes(self, candidate: Candidate, **options: object) -> float:
        """Return the least bytes of parameters and optimizer state on a device, without a compile."""
        chosen = options_of(candidate, options).parallelism
        return self._bounds.least(chosen, options).state.on_device(candidate)

    def look(self, candidate: Candidate) -> None:
        """Capture the step that a search for a candidate looks at. Raises what a capture raises."""
        self.versions.few(searched_options(candidate))

    def program(self, candidate: Candidate) -> Program:
        """Return the step that a search for a candidate looks at, on one device.

        Raises what a capture raises.
        """
        with collection_paused():
            capture, _ = self.versions.few(searched_options(candidate))
            program = ingest_capture(capture).program
        assert program is not None
        return program

    def key(self) -> str:
        """Return a question's cache key: a hash of the step with few layers, and of the number of layers."""
        with collection_paused():
            return self.versions.key(SINGLE)

    def _few(self, candidate: Candidate, options: Mapping[str, object], *, is_checked: bool) -> Few:
        """Return the prices with two periods of each stretch, and with three of one stretch each.

        ``is_checked``: compare with a program of :data:`CHECKED` periods, and raise NotAffine.
        """
        layered, cluster = self.programs.layered, self.programs.cluster
        of = partial(Asked, candidate, options=options, layered=layered, cluster=cluster)
        *deeper, shallow = self._few_layers
        # The deeper programs contain all of the shallow one's ops, and are verified.
        asked = [*(of(periods) for periods in deeper), of(shallow, verify=False)]
        checked = self.versions.even(CHECKED)
        more = [of(checked)] if is_checked else []
        beside = self._beside
        prices = [*map(self._asked, [*asked, *more])] if beside is None else beside.prices(asked, more)
        few = Few(prices[len(deeper)], prices[: len(deeper)])
        if is_checked:
            few.check(prices[-1], checked)
        return few

    @property
    def _few_layers(self) -> list[Periods]:
        """Two periods of each stretch, but three of one stretch each; last two of each."""
        runs = enumerate(self.versions.whole)
        deeper = [self.versions.deepened(FEW, r, s) for r, run in runs for s, _ in enumerate(run)]
        return [*deeper, self.versions.even(FEW)]

    def _asked(self, asked: Asked) -> Priced:
        """Return the price of a program with few layers."""
        programs = replace(self.programs, layered=asked.layered, cluster=asked.cluster)
        with collection_paused():
            return programs.price(asked.candidate, asked.periods, asked.options, asked.verify)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Context in which forked children capture the programs with few layers, and price them."""
        if self._beside is not None or not self.versions.runs or not can_fork():
            yield
            return
        self._beside = Beside(self._asked, self._captured, self._few_layers)
        try:
            yield
        finally:
            self._beside.end()
            self._beside = None

    def _captured(self, periods: Periods) -> None:
        with collection_paused():
            self.versions.captured(periods, SINGLE)


def _key(candidate: Candidate, whole: bool, options: Mapping[str, object]) -> _Key:
    return candidate.text, whole, repr(options)


def _with_form(candidate: Candidate, options: Mapping[str, object]) -> Candidate:
    """Return a candidate for a search with the schedule that options name."""
    is_given = options.get("schedule") is not None or options.get("balance_activations")
    if not is_searched(candidate.plan) or not is_given:
        return candidate
    chosen = options_of(candidate, options)
    ranks = candidate.mesh.get(chosen.parallelism.pipeline_axis(), 1)
    return replace(candidate, form=schedule_form(chosen.pipeline, ranks) or ONE_F_ONE_B)


def _with_offload(priced: Priced, options: Mapping[str, object]) -> Priced:
    if options.get("offload") != "optimizer":
        return priced
    return replace(priced, memory=[offloaded(rank) for rank in priced.memory])
