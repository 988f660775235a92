"""Rank programs of one question's plans, and the prices of programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from shardc.compiler.memory import step_peak
from shardc.cost.cluster.cluster import Cluster
from shardc.passes.search.dist_search import DistSearch
from shardc.passes.search.layered import LayeredCuts
from shardc.planning.candidates import Candidate, options_of
from shardc.planning.depth.shallow import Periods
from shardc.planning.price import Priced, price_of
from shardc.planning.versions import Versions, counts_of
from shardc.report.device_work import Work, single_work
from shardc.step.foreign.resolve import resolve_plan
from shardc.step.shard import Compiled, CutAt, capture_choices, compile_capture
from shardc.step.sharding.mesh import mesh_of
from shardc.step.sharding.plan import model_plan_of
from shardc.step.within_budget import Ladder, Made


@dataclass(frozen=True)
class Programs:
    """Rank programs of one question's plans.

    Attributes:
        versions: Captures of the question's step.
        cluster: Cluster whose links decide which collectives change a layout. If None, bytes sent decide.
        layered: Result of a search, which compiles use instead of a search of their own.
        single: Work of the single-device program, which does not depend on the plan, by tokens and version.
    """

    versions: Versions
    cluster: Cluster | None = None
    layered: LayeredCuts | None = None
    single: dict[tuple[object, ...], list[Work]] = field(default_factory=dict)

    def compiled(
        self,
        candidate: Candidate,
        periods: Periods | None = None,
        *,
        verify: bool = True,
        cut_at: CutAt | None = None,
        **options: object,
    ) -> Compiled:
        """Return the rank program of one plan at level 3, with ``periods`` of equal layers if given.

        ``verify`` and ``cut_at`` are those of :func:`compile_capture`. ``options``: other options of
        ``compile_step``. Raises what a compile raises.
        """
        cluster = self.cluster_of(candidate)
        chosen = options_of(candidate, options if cluster is None else {"cluster": cluster, **options})
        model = self.versions.question.model
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
        limit_s = chosen.parallelism.search_seconds or inf
        search = DistSearch(seconds=limit_s, hears=True, saved=self.layered)
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

    def price(
        self,
        candidate: Candidate,
        periods: Periods,
        options: Mapping[str, object],
        verify: bool = True,
        cut_at: CutAt | None = None,
    ) -> Priced:
        """Return the price of one plan's program with ``periods`` of equal layers.

        The other arguments are those of :meth:`compiled`. Raises what a compile raises.
        """
        tokens = self.versions.question.tokens
        compiled = self.compiled(candidate, periods, verify=verify, cut_at=cut_at, **options)
        key = tokens, counts_of(periods), tuple(compiled.capture.noted)
        if key not in self.single:
            self.single[key] = single_work(compiled.global_module)
        return price_of(candidate, tokens, compiled, self.single[key])

    def cluster_of(self, candidate: Candidate) -> Cluster | None:
        """Return the cluster with the part of its memory that a search for the candidate may use."""
        if self.cluster is None or candidate.room == 1:
            return self.cluster
        sizes = [device.memory_bytes * candidate.room for device in self.cluster.devices]
        pairs = zip(self.cluster.devices, sizes, strict=True)
        return replace(self.cluster, devices=tuple(replace(d, memory_bytes=size) for d, size in pairs))
