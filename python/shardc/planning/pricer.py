"""Prices of one question's plans. Models with many equal layers are priced from a few of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeVar

import torch

from shardc.compiler.memory import step_peak
from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.base import ShardcError
from shardc.dialects.collection import collection_paused
from shardc.options.parallelism import Parallelism
from shardc.options.pipeline import Pipeline
from shardc.options.presets import AUTO, is_searched
from shardc.options.step import StepOptions
from shardc.passes.pipeline.schedules import by_name
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.passes.search.dist_search import DistSearch
from shardc.passes.search.fold import NotFolded
from shardc.planning.bounds.bound import Bound
from shardc.planning.bounds.bounds import Bounds
from shardc.planning.candidates import DATA, PIPE, Candidate
from shardc.planning.depth.blend import NotAffine
from shardc.planning.depth.few import FEW, Few
from shardc.planning.depth.shallow import Periods
from shardc.planning.depth.staged import Compile, Sizes, Uncut, fewest, staged, uncut
from shardc.planning.offload import offloaded
from shardc.planning.price import Priced, price_of
from shardc.planning.question import Question
from shardc.planning.versions import Versions, counts_of
from shardc.report.device_work import Work, single_work
from shardc.runtime.report.logs import TIMING
from shardc.step.foreign.resolve import resolve_plan
from shardc.step.shard import (
    Compiled,
    CutAt,
    capture_choices,
    compile_capture,
    make_mesh,
    mesh_of,
    model_plan_of,
    search_capture,
)
from shardc.step.within_budget import Ladder, Made

T = TypeVar("T")
ONE_F_ONE_B = Pipeline().schedule
"""Schedule of pipelines whose options are not given."""
CHECKED = 4
"""Periods of equal layers in the program that checks the prediction from two and three of them."""


class Pricer:
    """Prices of one question's plans, from :class:`Versions` of its model.

    ``cluster``: its links decide which collectives change a layout, as in ``compile_step``. Without one, the
    bytes that devices send decide.
    """

    def __init__(
        self, question: Question, autocast: str | None = None, cluster: Cluster | None = None
    ) -> None:
        self.versions = Versions(question, None if autocast is None else getattr(torch, autocast))
        self._bounds = Bounds(self.versions)
        self._cluster = cluster
        self._single: dict[tuple[object, ...], list[Work]] = {}
        """Work of the single-device program, which does not depend on the plan, by tokens and version."""
        self._looked: dict[tuple[str, str], Uncut | None] = {}
        """Pipelines that were looked at and not priced yet, by plan and options."""
        self._is_checked = False

    @property
    def question(self) -> Question:
        return self.versions.question

    def on(self, cluster: Cluster) -> Pricer:
        """Return a pricer of the same question for another cluster, with the same captures."""
        other = copy(self)
        other._cluster = cluster
        return other

    def price(self, candidate: Candidate, *, whole: bool = False, **options: object) -> Priced:
        """Return the work of one plan, from which its costs follow.

        ``options``: other options of ``compile_step``. ``whole``: compile each layer. Raises what a compile
        raises.
        """
        with collection_paused():
            priced = None if whole else self._foretold(candidate, options)
            if priced is None:
                priced = self._price(candidate, self.versions.whole, options)
        return _with_offload(priced, options)

    def _foretold(self, candidate: Candidate, options: Mapping[str, object]) -> Priced | None:
        """Predict the price from a few layers. Return None if each layer must be compiled.

        Each layer is compiled for searched plans and for saved plans, which treat equal layers differently,
        for named stages, and if costs are not affine in the number of layers.
        """
        is_by_name = not isinstance(options.get("recompute", "none"), str)
        is_by_name |= options.get("constraints") is not None
        is_by_name |= options.get("memory_budget") is not None  # the peak of all layers decides
        is_by_name |= is_searched(candidate.plan) or candidate.plan.endswith(".json")
        if is_by_name or not self.versions.runs:
            return None
        if "pipeline" in candidate.plan:
            return self._staged(candidate, options)
        is_first, self._is_checked = not self._is_checked, True
        try:
            few = self._few(candidate, options)
            if is_first:
                few.check(
                    self._price(candidate, self.versions.even(CHECKED), options), self.versions.even(CHECKED)
                )
            return few.of(self.versions.whole)
        except NotAffine as error:
            _log(str(error))
        except ShardcError as error:
            if not is_first:
                raise
            # The whole model is compiled next, and raises its own errors.
            _log(next(iter(str(error).splitlines())))
        if is_first:
            self.versions.runs = []
        return None

    def _staged(self, candidate: Candidate, options: Mapping[str, object]) -> Priced | None:
        """Predict the price of a pipeline from few layers and micro-batches. Return None if that fails."""
        looked, sizes = self._look(candidate, options), self._sizes(candidate, options)
        if looked is None or sizes is None:
            return None
        self._looked.clear()
        schedule = by_name.schedule(str(ONE_F_ONE_B), sizes.stages, sizes.micro_batches, ranks=sizes.stages)
        compiled = self._compiles(candidate, options, sizes)
        return _unless_refused(
            lambda: replace(staged(compiled, looked, sizes, schedule), candidate=candidate)
        )

    def _look(self, candidate: Candidate, options: Mapping[str, object]) -> Uncut | None:
        """Return a pipeline before it is cut, compiled with few layers. Return None if that fails."""
        key, sizes = (candidate.text, repr(options)), self._sizes(candidate, options)
        if sizes is not None and key not in self._looked:
            compiled = self._compiles(candidate, options, sizes)
            self._looked[key] = _unless_refused(lambda: uncut(compiled, sizes))
        return self._looked.get(key)

    def _sizes(self, candidate: Candidate, options: Mapping[str, object]) -> Sizes | None:
        """Return the sizes of a pipeline; None if each of its layers must be compiled."""
        chosen = _chosen(candidate, options)
        stages = candidate.mesh.get(chosen.parallelism.pipeline_axis(), 1)
        counts = [stretch.count for run in self.versions.runs for stretch in run.stretches]
        if chosen.pipeline is not None or len(counts) != 1 or stages == 1:
            return None
        parts = candidate.micro_batches
        return Sizes(counts[0], stages, parts, fewest(stages, parts))

    def _compiles(self, candidate: Candidate, options: Mapping[str, object], sizes: Sizes) -> Compile:
        def compiled(layers: int, cut_at: CutAt, *, is_few: bool) -> Priced:
            pricer = self._with_batch(sizes.micro_batches // sizes.few) if is_few else self
            asked = replace(candidate, micro_batches=sizes.few) if is_few else candidate
            # What is cut contains the ops of what is not.
            return pricer._price(asked, self.versions.even(layers), options, verify=is_few, cut_at=cut_at)

        return compiled

    def _with_batch(self, times: int) -> Pricer:
        """Return a pricer of the same step with a batch so many times smaller."""
        other = copy(self)
        other.versions = self.versions.smaller(times)
        return other

    def compiled(
        self,
        candidate: Candidate,
        periods: Periods | None = None,
        *,
        verify: bool = True,
        cut_at: CutAt | None = None,
        **options: object,
    ) -> Compiled:
        """Return the rank program of one plan at level 3, with ``periods`` of equal layers if given."""
        cluster = self.cluster_of(candidate)
        chosen = _chosen(candidate, options if cluster is None else {"cluster": cluster, **options})
        model = self.question.model
        plan, pipeline = resolve_plan(chosen.parallelism, model, chosen.pipeline)
        capture = partial(
            self.versions.captured, self.versions.whole if periods is None else periods, chosen.parallelism
        )
        mesh = mesh_of(chosen.parallelism)
        read = partial(
            capture_choices,
            mesh=mesh,
            plan=plan,
            model_plan=model_plan_of(model),
            reduce_dtype=chosen.numerics.reduce_dtype,
            reshard_after_forward=chosen.parallelism.reshard_after_forward,
            experts=chosen.parallelism.experts,
        )
        search = DistSearch(seconds=chosen.parallelism.search_seconds or inf, hears=True)
        more = {"pipeline": pipeline, "cluster": cluster, "verify": verify, "search": search}
        more["cut_at"] = cut_at
        make = partial(compile_capture, **read.keywords, **more)
        budget = chosen.parallelism.memory_budget
        if budget is None:
            return make(capture(), recompute=chosen.parallelism.recompute)

        def attempt(again: frozenset[int]) -> Made[Compiled]:
            made = make(capture(), recompute=again)
            return Made(made, step_peak(made.program))

        found = Ladder(attempt, lambda: read(capture())).within(budget)
        if found.remark is not None:
            found.step.remarks.append(found.remark)
        return found.step

    def found(self, candidate: Candidate, cutoff_s: float = inf, clock: Clock | None = None) -> Found | Unfit:
        """Search the best plan for a candidate's mesh, on a few of the equal layers.

        ``cutoff_s``: seconds per step that a result must beat. ``clock``: time limit. Recomputed stages are
        treated as recomputed layers. Raises what a capture raises.
        """
        cluster, recompute = self.cluster_of(candidate), candidate.recompute or "none"
        assert cluster is not None, "searches are for a cluster"
        options = _searched(candidate)
        while True:
            periods, more = self.versions.searched()
            try:
                with collection_paused():
                    return search_capture(
                        self.versions.captured(periods, options),
                        make_mesh(candidate.mesh, candidate.micro_batches),
                        candidate.plan,
                        cluster,
                        recompute=recompute,
                        more=more,
                        cutoff_s=cutoff_s,
                        clock=clock,
                    )
            except NotFolded as error:
                _log(f"layers that are not found among the calls of {error}")
                self.versions.stands = False

    def bound(self, candidate: Candidate, **options: object) -> Bound:
        """Return a lower bound of what a plan needs, without a compile of it.

        ``options``: other options of ``compile_step``, as in :meth:`price`. Raises what a capture raises.
        """
        chosen = _chosen(candidate, options).parallelism
        return self._bounds.of(candidate, chosen, options, self.cluster_of(candidate))

    def closer_bound(self, candidate: Candidate, **options: object) -> Bound | None:
        """Return a closer lower bound of a pipeline, from its program before it is cut into stages.

        Return None for other plans. Pricing the plan next takes that much less. Raises what a capture raises.
        """
        chosen = _chosen(candidate, options).parallelism
        pipe, cluster = chosen.pipeline_axis(), self.cluster_of(candidate)
        is_known = chosen.recompute == "none" and options.get("constraints") is None
        if not pipe or cluster is None or not is_known or chosen.shares is not None:
            return None
        with collection_paused():
            looked = self._look(candidate, options)
        if looked is None:
            return None
        return self._bounds.of_uncut(candidate, chosen, options, cluster, looked)

    def least_state_bytes(self, candidate: Candidate, **options: object) -> float:
        """Return the least bytes of parameters and optimizer state on a device, without a compile."""
        chosen = _chosen(candidate, options).parallelism
        return self._bounds.least(chosen, options).state.on_device(candidate)

    def look(self, candidate: Candidate) -> None:
        """Capture the step that a search for a candidate looks at. Raises what a capture raises."""
        self.versions.captured(self.versions.searched()[0], _searched(candidate))

    def key(self) -> str:
        """Return a question's cache key: a hash of the step with few layers, and of the number of layers."""
        options = StepOptions.of({"mesh": {DATA: 1}}).parallelism
        with collection_paused():
            return self.versions.key(options)

    def cluster_of(self, candidate: Candidate) -> Cluster | None:
        """Return the cluster with the part of its memory that a search for the candidate may use."""
        if self._cluster is None or candidate.room == 1:
            return self._cluster
        sizes = [device.memory_bytes * candidate.room for device in self._cluster.devices]
        pairs = zip(self._cluster.devices, sizes, strict=True)
        return replace(self._cluster, devices=tuple(replace(d, memory_bytes=size) for d, size in pairs))

    def _price(
        self,
        candidate: Candidate,
        periods: Periods,
        options: Mapping[str, object],
        verify: bool = True,
        cut_at: CutAt | None = None,
    ) -> Priced:
        compiled = self.compiled(candidate, periods, verify=verify, cut_at=cut_at, **options)
        key = self.question.tokens, counts_of(periods), tuple(compiled.capture.noted)
        if key not in self._single:
            self._single[key] = single_work(compiled.global_module)
        return price_of(candidate, self.question.tokens, compiled, self._single[key])

    def _few(self, candidate: Candidate, options: Mapping[str, object]) -> Few:
        """Return the prices with two periods of each stretch, and with three of one stretch each."""
        counts = self.versions.whole
        deeper = [
            self._price(candidate, self.versions.deepened(FEW, r, s), options)
            for r, run in enumerate(counts)
            for s, _ in enumerate(run)
        ]
        # The deeper programs contain all of this one's ops, and were verified.
        return Few(self._price(candidate, self.versions.even(FEW), options, verify=False), deeper)


def _unless_refused(price: Callable[[], T]) -> T | None:
    """Return a price; None if each layer must be compiled. That compile raises the errors of the model."""
    try:
        return price()
    except NotAffine as error:
        _log(str(error))
    except ShardcError as error:
        _log(next(iter(str(error).splitlines())))
    return None


def _chosen(candidate: Candidate, options: Mapping[str, object]) -> StepOptions:
    given = {"mesh": candidate.mesh, "plan": candidate.plan, "micro_batches": candidate.micro_batches}
    again = {"recompute": candidate.recompute} if candidate.recompute else {}
    return StepOptions.of({**given, **options, **again})


def _searched(candidate: Candidate) -> Parallelism:
    """Return the options with which a step is captured for a search."""
    inside = {name: size for name, size in candidate.mesh.items() if name != PIPE} or {DATA: 1}
    recompute = candidate.recompute or "none"
    return StepOptions.of({"mesh": inside, "plan": AUTO, "recompute": recompute}).parallelism


def _with_offload(priced: Priced, options: Mapping[str, object]) -> Priced:
    if options.get("offload") != "optimizer":
        return priced
    return replace(priced, memory=[offloaded(rank) for rank in priced.memory])


def _log(problem: str) -> None:
    TIMING.debug("plan: each layer is compiled: %s", problem)
