"""Request to ``shardc plan`` with its model loaded: the plans to price, their prices, and changes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod

import torch

from shardc.commands.plans.request import PRESETS, PlanRequest
from shardc.commands.script import read_script
from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.search import (
    ElasticNotSearched,
    NothingSearched,
    NotSearched,
    SearchWithoutCluster,
)
from shardc.diagnostics.planning import BatchDoesNotDivide, NotAModel, SizesOfScript
from shardc.options.presets import AUTO, is_searched
from shardc.planning.auto.elastic import Left, fewer_json, fewer_table, plans_for_fewer
from shardc.planning.auto.front import front_json, front_of, front_text
from shardc.planning.auto.kept import Answer
from shardc.planning.auto.searches import MeshOfStages, Searches
from shardc.planning.auto.sensitivity import sensitivity_json, sensitivity_of, sensitivity_text
from shardc.planning.best_first import NOTHING, Prices, best_first
from shardc.planning.bounds.bound import Bound
from shardc.planning.candidates import PIPE, Candidate, meshes_of, micro_batches, plans_of
from shardc.planning.largest import largest
from shardc.planning.price import Price, Priced
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, Sizes, read_config, tokens_of
from shardc.planning.verdict import brief, fitting, lacking, too_much_state
from shardc.planning.what_if import WhatIf, read_what_if
from shardc.runtime.report import progress

LENGTHS = 128
"""Sequence lengths that are tried are multiples of this."""
MOST_BATCHES = 1 << 16
"""Largest batch that is tried, as a multiple of the smallest."""
REMEDIES = ("recompute=selective", "recompute=full", "batch=0.5x", "batch=0.25x", "batch=0.125x")
"""Changes that are tried on a plan that does not fit, the least intrusive first."""
PRECISIONS: Mapping[str, tuple[torch.dtype, str | None]] = {
    "bf16": (torch.bfloat16, None),
    "mixed": (torch.float32, "bfloat16"),
    "f32": (torch.float32, None),
}
"""Dtype of weights and optimizer state, and dtype of autocast."""


class LoadedRequest:
    """Request with its model loaded."""

    def __init__(self, request: PlanRequest, cluster: Cluster) -> None:
        self._request, self._cluster = request, cluster
        self.batch = request.batch or self._devices
        self.question, autocast = self._read(self.batch, request.length)
        self._pricer = self._pricer_of(self.question, autocast)

    def _pricer_of(self, question: Question, autocast: str | None) -> Pricer:
        """Return a pricer whose compiles minimize time on one cluster, or bytes for several."""
        return Pricer(question, autocast, self._cluster if len(self._request.clusters) == 1 else None)

    @property
    def capacity_bytes(self) -> float:
        """Memory of the smallest device in use."""
        return min(device.memory_bytes for device in self._cluster.used(self._cluster.size))

    @property
    def _devices(self) -> int:
        return max((prod(mesh.values()) for mesh in self._request.meshes), default=self._cluster.size)

    def _read(
        self, batch: int, length: int | None, precision: str | None = None
    ) -> tuple[Question, str | None]:
        request = self._request
        precision = precision or request.precision
        if request.source.suffix == ".json":
            dtype, autocast = PRECISIONS[precision or "bf16"]
            return read_config(request.source, Sizes(batch, length), dtype), autocast
        if request.source.suffix != ".py":
            raise NotAModel(path=request.source, where=str(request.source))
        given = {"batch": request.batch, "length": length, "precision": precision}
        if batch != self.batch:
            given["batch"] = batch
        for option, value in given.items():
            if value is not None:
                raise SizesOfScript(option=option, where=str(request.source))
        t = read_script(request.source)
        made = Question(type(t.model).__name__, t.model, t.optimizer, t.batch, t.loss, tokens_of(t.batch))
        self.batch = made.samples
        return made, None

    def searches(self) -> Searches | None:
        """Return the searches of all that a searched plan leaves open; None if no plan is searched.

        Raises SearchWithoutCluster, NotSearched, BadArgument. Raises NothingSearched or ElasticNotSearched if
        there is no search but an option needs one.
        """
        request = self._request
        is_around = any(map(self._is_around, request.plans))
        if request.elastic and (request.meshes or not is_around):
            raise ElasticNotSearched(where="--elastic")
        if not is_around:
            for option in (name for name in ("front", "sensitivity") if getattr(request, name)):
                missing = f" around the cuts: {request.fixing} is given" if AUTO in request.plans else ""
                raise NothingSearched(option=option, missing=missing)
            return None
        if "constraints" in self._options and not request.meshes:
            raise NotSearched(option="constraints without a mesh")
        if len(request.clusters) > 1:
            raise SearchWithoutCluster()
        return self._searches(self._pricer, self._cluster)

    @property
    def _options(self) -> Mapping[str, object]:
        return self._request.options or {}

    def _is_around(self, plan: str) -> bool:
        """Return True if a plan is searched with its micro-batches, recomputation and schedule."""
        if plan == AUTO and not self._request.meshes:
            return True
        return bool(self._meshes_of_stages(plan))

    def _meshes_of_stages(self, plan: str) -> Iterable[MeshOfStages]:
        """Return the given meshes, each with its number of stages, if all else is searched; none if not."""
        if self._request.fixing:
            return ()
        if plan == AUTO:
            return [(mesh, 1) for mesh in self._request.meshes]
        meshes = self._request.meshes
        has_stages = _is_pipeline(plan) and all(mesh.get(PIPE, 1) > 1 for mesh in meshes)
        return [(mesh, mesh[PIPE]) for mesh in meshes] if has_stages else ()

    def more(self, searches: Searches, answer: Answer) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield further results of a search, as text and as data. Raises BadClusterSize."""
        request = self._request
        if request.front:
            front = front_of(searches, searches.picked(answer))
            yield "\n".join(front_text(front)), {"front": front_json(front)}
        if request.sensitivity:
            found = sensitivity_of(searches, searches.picked(answer), self._searches_after)
            yield "\n".join(sensitivity_text(found)), {"sensitivity": sensitivity_json(found)}
        if request.elastic:
            first = Left(self._cluster, answer)
            fewer = plans_for_fewer(first, request.elastic, self._searches_on)
            yield "\n".join(fewer_table(fewer)), {"elastic": fewer_json(fewer)}

    def _searches_after(self, change: WhatIf) -> Searches:
        """Return the searches after a change of the links or the batch. Raises SizesOfScript, BadWhatIf."""
        if change.is_of_cluster:
            return self._searches_on(change.cluster(self._cluster))
        question = self._read(change.count(self.batch), self._request.length)
        return self._searches(self._pricer_of(*question), self._cluster)

    def _searches_on(self, cluster: Cluster) -> Searches:
        return self._searches(self._pricer.on(cluster), cluster)

    def _searches(self, pricer: Pricer, cluster: Cluster) -> Searches:
        options = {**self._options, "whole": self._request.every_layer}
        recompute, limit_s = options.pop("recompute", None), options.pop("search_seconds", None)
        limits = options.pop("search_limits", None)
        assert limit_s is None or isinstance(limit_s, float | int)
        meshes = [found for name in self._request.plans for found in self._meshes_of_stages(name)]
        asked = self._request.micro_batches, recompute, limit_s, limits, meshes
        return Searches(pricer, cluster, *asked, **options)

    def candidates(self) -> Iterator[Candidate]:
        """Yield the plans to price. Raises BatchDoesNotDivide if there are none."""
        request, layers, named = self._request, self.question.layers, self._named
        has_presets = not request.plans or PRESETS in request.plans
        for mesh in request.meshes or (self._meshes(layers) if named or has_presets else ()):
            for text in named:
                yield Candidate(mesh, text, request.micro_batches or self._parts(mesh, text))
            if has_presets:
                parts = request.micro_batches
                for found in plans_of(mesh, self.batch):
                    yield found if parts is None else replace(found, micro_batches=parts)

    @property
    def _named(self) -> Sequence[str]:
        """Plans to price as they are."""
        return [text for text in self._request.plans if text != PRESETS and not self._is_around(text)]

    def _meshes(self, layers: int) -> Sequence[Mapping[str, int]]:
        node = self._cluster.levels[0].ways
        found = list(meshes_of(self._cluster.size, node, self.batch, layers))
        if not found:
            size, name = self._cluster.size, self._cluster.name
            raise BatchDoesNotDivide(devices=size, cluster=name, batch=self.batch, example=size)
        return found

    def _parts(self, mesh: Mapping[str, int], text: str) -> int:
        """Return the number of micro-batches for a plan that does not give one."""
        if "pipeline" not in text:
            return 1
        stages = next((n for axis, n in mesh.items() if axis in ("pipe", "pp", "pipeline", "stage")), 1)
        return micro_batches(self.batch // (mesh.get("data", 1)), stages)

    def prices(self, candidates: Sequence[Candidate]) -> Prices:
        """Return prices of plans, and why others have none. If all fail, the last error is raised.

        Plans that the user named are all compiled. If there are several clusters, or no bound is known, so
        are all others.
        """
        request, done, options = self._request, list[Price](), self._options
        bounds = [(candidate, NOTHING) for candidate in candidates]
        is_named = bool(self._named) or request.every_plan
        is_named |= len(candidates) == 1 or len(request.clusters) > 1
        if not is_named:
            bounds = [(c, self._pricer.bound(c, **options)) for c in candidates]

        def price(candidate: Candidate) -> Price:
            best = min(done, key=lambda price: price.order, default=None)
            known = "" if best is None else f", the best so far: {brief(best)}"
            progress.step(f"plan {len(done) + 1} of {len(candidates)}, {candidate.text}{known}")
            done.append(self._priced(self._pricer, candidate).on(self._cluster))
            return done[-1]

        def closer(candidate: Candidate) -> Bound | None:
            if is_named or request.every_layer:
                return None
            progress.step(f"bounds of {candidate.text}")
            return self._pricer.closer_bound(candidate, **options)

        with self._pricer.beside() if candidates else nullcontext():
            return best_first(bounds, self.capacity_bytes, price, closer)

    def changed(self, price: Price, change: WhatIf) -> Price:
        """Return the plan's price after a change. A change of the batch needs another compile."""
        if change.is_of_cluster:
            return price.priced.on(change.cluster(price.cluster))
        candidate, name = price.priced.candidate, change.name
        if name == "micro-batches":
            candidate = replace(candidate, micro_batches=change.count(candidate.micro_batches))
            return self._priced(self._pricer, candidate).on(price.cluster)
        if name == "precision":
            pricer = self._pricer_of(*self._read(self.batch, self._request.length, change.word))
            return self._priced(pricer, candidate).on(price.cluster)
        if change.word:
            option = {name.replace("-", "_"): change.word}
            return self._priced(self._pricer, candidate, **option).on(price.cluster)
        batch = change.count(self.batch) if name == "batch" else self.batch
        length = change.count(self.question.length) if name == "length" else self._request.length
        return self._of_size(price, batch, length)

    def remedy(self, price: Price) -> str:
        """Describe the first change of REMEDIES that makes a plan fit."""
        candidate = price.priced.candidate
        least_bytes = self._pricer.least_state_bytes(candidate, **self._options)
        if least_bytes > price.capacity_bytes:  # no change of REMEDIES makes parameters and state smaller
            return too_much_state(least_bytes)
        for text in REMEDIES:
            if candidate.recompute is not None and text.startswith("recompute"):  # a search has tried it
                continue
            try:
                changed = self.changed(price, read_what_if(text))
            except ShardcError:  # this change does not apply to this model, or to a script
                continue
            if changed.fits:
                return fitting(changed, text)
        return lacking(price)

    def _of_size(self, price: Price, batch: int, length: int | None) -> Price:
        """Return the plan's price for another batch."""
        pricer = self._pricer_of(*self._read(batch, length))
        return self._priced(pricer, price.priced.candidate).on(price.cluster)

    def _priced(self, pricer: Pricer, candidate: Candidate, **changed: object) -> Priced:
        options = {**self._options, **changed}
        if not is_searched(candidate.plan):
            options.pop("search_seconds", None)
        options.pop("search_limits", None)
        whole = self._request.every_layer
        return pricer.price(candidate, whole=whole, explain="runners-up", **options)

    def whole(self, price: Price) -> Price:
        """Return the price with every layer compiled, for layouts of arguments and memory over the step."""
        candidate = price.priced.candidate
        found = self._pricer.price(candidate, whole=True, explain="runners-up", **self._options)
        return found.on(price.cluster)

    def largest(self, price: Price) -> str:
        """Describe the largest batch or length with which a plan fits."""
        candidate, what = price.priced.candidate, self._request.largest
        step = LENGTHS if what == "length" else prod(candidate.mesh.values()) * candidate.micro_batches

        def free(count: int) -> float:
            progress.step(f"{what} {count * step:,}")
            sizes = (self.batch, count * step) if what == "length" else (count * step, self._request.length)
            return self._of_size(price, *sizes).free_bytes

        most = self.question.longest // LENGTHS if what == "length" else MOST_BATCHES
        found = largest(free, max(most, 1))
        bounded = ", the most that the model takes" if found == most and what == "length" else ""
        if not found:
            return f"no {what} fits: {step:,} is too much for {candidate.text}"
        return f"largest {what} that fits, in steps of {step:,}: {found * step:,}{bounded}"


def _is_pipeline(plan: str) -> bool:
    """Return True for ``pipeline*auto``, in either order."""
    return sorted(word.strip() for word in plan.split("*")) == [AUTO, "pipeline"]
