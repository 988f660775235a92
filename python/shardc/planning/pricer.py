"""Prices of one question's plans. Models with many equal layers are priced from a few of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeVar

import torch

from shardc.compiler.memory import step_peak
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.step.on_cluster import costs_on
from shardc.diagnostics.base import ShardcError
from shardc.dialects.collection import collection_paused
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.constrained import Wanted
from shardc.frontend.step.spec import Capture, TensorSpec
from shardc.options.parallelism import Parallelism
from shardc.options.pipeline import Pipeline
from shardc.options.presets import AUTO, CONTEXT_PRESETS, is_searched
from shardc.options.step import StepOptions
from shardc.passes.manager.program import copy_module
from shardc.passes.pipeline.schedules import by_name
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.passes.search.dist_search import DistSearch
from shardc.passes.search.fold import STANDING, More, NotFolded
from shardc.planning.bounds.bound import Bound, Least, SingleStep
from shardc.planning.bounds.kept import Kept
from shardc.planning.bounds.looked import fullest_bytes, step_s
from shardc.planning.bounds.pipelined import Shape
from shardc.planning.bounds.state import LeastState, presets_of
from shardc.planning.candidates import DATA, PIPE, Candidate
from shardc.planning.depth.blend import NotAffine
from shardc.planning.depth.few import FEW, MORE, Few
from shardc.planning.depth.runs import runs_of
from shardc.planning.depth.shallow import Periods, shallow
from shardc.planning.depth.staged import Compile, Sizes, Uncut, fewest, staged, uncut
from shardc.planning.offload import offloaded
from shardc.planning.price import Priced, price_of
from shardc.planning.question import Question
from shardc.report.device_work import Work, single_work
from shardc.runtime.report.logs import TIMING
from shardc.step.foreign.resolve import resolve_plan
from shardc.step.micro_batches import cut_micro_batches
from shardc.step.modules.constraints import layouts_of
from shardc.step.modules.recomputed import recomputed
from shardc.step.shard import (
    Compiled,
    CutAt,
    capture_choices,
    compile_capture,
    ingest_capture,
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
Counts = tuple[tuple[int, ...], ...]
Version = tuple[Counts, tuple[str, ...], tuple[tuple[str, Wanted], ...]]
"""Version of the model that is captured: its periods of equal layers, the modules that the capture notes, and
the modules with constrained outputs.
"""


class Pricer:
    """Prices of one question's plans. Each version of the model is captured once.

    ``cluster``: its links decide which collectives change a layout, as in ``compile_step``. Without one, the
    bytes that devices send decide.
    """

    def __init__(
        self, question: Question, autocast: str | None = None, cluster: Cluster | None = None
    ) -> None:
        self.question, self._cluster = question, cluster
        self._autocast = None if autocast is None else getattr(torch, autocast)
        self._captures: dict[Version, Capture] = {}
        self._single: dict[tuple[Counts, tuple[str, ...]], list[Work]] = {}
        """Work of the single-device program, which does not depend on the plan."""
        self._least: dict[tuple[object, ...], Least] = {}
        self._fewer: dict[int, Pricer] = {}
        """Pricers of the same step with a batch so many times smaller."""
        self._runs = runs_of(question.model)
        self._looked: dict[tuple[str, str], Uncut | None] = {}
        """Pipelines that were looked at and not priced yet, by plan and options."""
        self._is_checked = False
        self.stands = True
        """True if searches may look at a few of the equal layers."""

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
                priced = self._price(candidate, self._whole(), options)
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
        if is_by_name or not self._runs:
            return None
        if "pipeline" in candidate.plan:
            return self._staged(candidate, options)
        is_first, self._is_checked = not self._is_checked, True
        try:
            few = self._few(candidate, options)
            if is_first:
                few.check(self._price(candidate, self._even(CHECKED), options), self._even(CHECKED))
            return few.of(self._whole())
        except NotAffine as error:
            _log(str(error))
        except ShardcError as error:
            if not is_first:
                raise
            # The whole model is compiled next, and raises its own errors.
            _log(next(iter(str(error).splitlines())))
        if is_first:
            self._runs = []
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
        counts = [stretch.count for run in self._runs for stretch in run.stretches]
        if chosen.pipeline is not None or len(counts) != 1 or stages == 1:
            return None
        parts = candidate.micro_batches
        return Sizes(counts[0], stages, parts, fewest(stages, parts))

    def _compiles(self, candidate: Candidate, options: Mapping[str, object], sizes: Sizes) -> Compile:
        def compiled(layers: int, cut_at: CutAt, *, is_few: bool) -> Priced:
            pricer = self._of_few(sizes.micro_batches // sizes.few) if is_few else self
            asked = replace(candidate, micro_batches=sizes.few) if is_few else candidate
            # What is cut contains the ops of what is not.
            return pricer._price(asked, self._even(layers), options, verify=is_few, cut_at=cut_at)

        return compiled

    def _of_few(self, times: int) -> Pricer:
        """Return a pricer of the same step with a batch so many times smaller."""
        if times == 1:
            return self
        if times not in self._fewer:
            batch = cut_micro_batches(self.question.batch, times).first
            other = copy(self)
            other.question = replace(self.question, batch=batch, tokens=self.question.tokens // times)
            other._captures, other._single = {}, {}
            self._fewer[times] = other
        return self._fewer[times]

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
        capture = partial(self._captured, self._whole() if periods is None else periods, chosen.parallelism)
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
            periods, more = self._stood_for()
            try:
                with collection_paused():
                    return search_capture(
                        self._captured(periods, options),
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
                self.stands = False

    def bound(self, candidate: Candidate, **options: object) -> Bound:
        """Return a lower bound of what a plan needs, without a compile of it.

        ``options``: other options of ``compile_step``, as in :meth:`price`. Raises what a capture raises.
        """
        least, is_known = self._least_for(candidate, options), options.get("pipeline") is None
        if _chosen(candidate, options).parallelism.shares is not None:
            state_bytes = least.state.on_device(candidate)
            return Bound(state_bytes, state_bytes=state_bytes)
        return least.of(candidate, self.cluster_of(candidate), is_known=is_known)

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
        shape, presets = Shape.of(candidate, pipe), set(presets_of(candidate).values())
        least = self._least_for(candidate, options)
        whole = least.trains_all and not presets.intersection(("zero2", "zero3", *CONTEXT_PRESETS))
        held = looked.held
        if options.get("offload") == "optimizer":
            held = [replace(holding, state_bytes=0) for holding in held]
        costs = costs_on(cluster, candidate.mesh)
        layers = self._whole()[0][0] - FEW
        seconds = step_s(looked.shallow.step, looked.deeper.step, layers, costs, shape)
        return Bound(fullest_bytes(held, shape, has_whole_sums=whole), seconds)

    def least_state_bytes(self, candidate: Candidate, **options: object) -> float:
        """Return the least bytes of parameters and optimizer state on a device, without a compile."""
        return self._least_for(candidate, options).state.on_device(candidate)

    def _least_for(self, candidate: Candidate, options: Mapping[str, object]) -> Least:
        chosen = _chosen(candidate, options).parallelism
        key = chosen.recompute, chosen.memory_budget is None, bool(chosen.pipeline_axis())
        if key not in self._least:
            with collection_paused():
                self._least[key] = self._make_least(chosen)
        least = self._least[key]
        if options.get("offload") == "optimizer":
            return replace(least, state=replace(least.state, state_bytes=0.0))
        return least

    def _make_least(self, options: Parallelism) -> Least:
        """Return the lower bounds of plans with these options of recomputation."""
        arguments = list[TensorSpec]()

        def single(periods: Periods) -> SingleStep:
            capture = self._captured(periods, options)
            arguments[:] = capture.arguments
            is_known = options.recompute == "none" or bool(capture.noted)
            is_known &= options.memory_budget is None
            recompute = options.recompute if is_known else "none"
            found = SingleStep.of(ingest_capture(capture, recompute=recompute))
            return found if is_known else replace(found, kept=Kept())

        counts = [(r, s, count) for r, run in enumerate(self._whole()) for s, count in enumerate(run)]
        shallow = single(self._even(FEW))
        deeper = [single(self._deepened(r, s)) for r, s, _ in counts]
        sizes = (p.numel() * p.itemsize for p in self.question.model.parameters())
        state = LeastState.of(arguments, sum(sizes))
        return Least(state, shallow, deeper, [(count - FEW) // (MORE - FEW) for _, _, count in counts])

    def _deepened(self, run: int, stretch: int) -> Periods:
        """Return :data:`FEW` periods of each stretch, and :data:`MORE` of one."""
        periods = self._even(FEW)
        periods[run][stretch] = MORE
        return periods

    def look(self, candidate: Candidate) -> None:
        """Capture the step that a search for a candidate looks at. Raises what a capture raises."""
        self._captured(self._stood_for()[0], _searched(candidate))

    def key(self) -> str:
        """Return a question's cache key: a hash of the step with few layers, and of the number of layers."""
        periods, more = self._stood_for()
        options = StepOptions.of({"mesh": {DATA: 1}}).parallelism
        with collection_paused():
            module = self._captured(periods, options).module
        text = module.operation.get_asm(assume_verified=True)
        return hashlib.sha256(repr((text, more, self._whole())).encode()).hexdigest()

    def cluster_of(self, candidate: Candidate) -> Cluster | None:
        """Return the cluster with the part of its memory that a search for the candidate may use."""
        if self._cluster is None or candidate.room == 1:
            return self._cluster
        sizes = [device.memory_bytes * candidate.room for device in self._cluster.devices]
        pairs = zip(self._cluster.devices, sizes, strict=True)
        return replace(self._cluster, devices=tuple(replace(d, memory_bytes=size) for d, size in pairs))

    def _stood_for(self) -> tuple[Periods, More]:
        """Return the layers that a search looks at, and the number of equal layers left out."""
        periods, more = [list(run) for run in self._whole()], list[tuple[str, int]]()
        if not self.stands:
            return periods, ()
        names = {id(module): name for name, module in self.question.model.named_modules()}
        for run, counts in zip(self._runs, periods, strict=True):
            if len(counts) == 1 and counts[0] > STANDING:
                more.append((names[id(run.layers)], counts[0] - STANDING))
                counts[0] = STANDING
        return periods, tuple(more)

    def _whole(self) -> Periods:
        return [[stretch.count for stretch in run.stretches] for run in self._runs]

    def _even(self, count: int) -> list[list[int]]:
        return [[count] * len(run.stretches) for run in self._runs]

    def _price(
        self,
        candidate: Candidate,
        periods: Periods,
        options: Mapping[str, object],
        verify: bool = True,
        cut_at: CutAt | None = None,
    ) -> Priced:
        compiled = self.compiled(candidate, periods, verify=verify, cut_at=cut_at, **options)
        key = _counts(periods), tuple(compiled.capture.noted)
        if key not in self._single:
            self._single[key] = single_work(compiled.global_module)
        return price_of(candidate, self.question.tokens, compiled, self._single[key])

    def _few(self, candidate: Candidate, options: Mapping[str, object]) -> Few:
        """Return the prices with two periods of each stretch, and with three of one stretch each."""
        counts = self._whole()
        deeper = [
            self._price(candidate, self._deepened(r, s), options)
            for r, run in enumerate(counts)
            for s, _ in enumerate(run)
        ]
        # The deeper programs contain all of this one's ops, and were verified.
        return Few(self._price(candidate, self._even(FEW), options, verify=False), deeper)

    def _captured(self, periods: Periods, options: Parallelism) -> Capture:
        """Return the captured step with a copy of its module, which the passes may change."""
        with shallow(self.question, self._runs, periods) as q:
            layouts = layouts_of(q.model, options.constraints)
            key = _counts(periods), recomputed(q.model, options), tuple(layouts.items())
            if key not in self._captures:
                self._captures[key] = capture_step(
                    q.model,
                    q.optimizer,
                    q.batch,
                    loss=q.loss,
                    autocast=self._autocast,
                    context=new_context(),
                    noted=key[1],
                    layouts=layouts,
                )
        capture = self._captures[key]
        return replace(capture, module=copy_module(capture.module))


def _unless_refused(price: Callable[[], T]) -> T | None:
    """Return a price; None if each layer must be compiled. That compile raises the errors of the model."""
    try:
        return price()
    except NotAffine as error:
        _log(str(error))
    except ShardcError as error:
        _log(next(iter(str(error).splitlines())))
    return None


def _counts(periods: Periods) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, periods))


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
