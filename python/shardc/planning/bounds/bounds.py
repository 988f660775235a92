"""Lower bounds of the plans of one question, by their options of recomputation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.step.on_cluster import fastest_costs_on
from shardc.diagnostics.base import ShardcError
from shardc.dialects.collection import collection_paused
from shardc.frontend.step.spec import TensorSpec
from shardc.options.parallelism import Parallelism
from shardc.options.presets import CONTEXT_PRESETS
from shardc.planning.bounds.bound import Bound, Least, SingleStep
from shardc.planning.bounds.kept import Kept
from shardc.planning.bounds.looked import fullest_bytes, step_s
from shardc.planning.bounds.pipelined import Shape
from shardc.planning.bounds.state import LeastState, presets_of
from shardc.planning.candidates import Candidate
from shardc.planning.depth.few import FEW, MORE
from shardc.planning.depth.shallow import Periods
from shardc.planning.depth.staged import Uncut
from shardc.planning.versions import Versions
from shardc.step.shard import ingest_capture

Options = Mapping[str, object]
"""Other options of ``compile_step``."""


class Bounds:
    """Lower bounds of what plans need, from steps on one device with few of the equal layers."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._least: dict[tuple[object, ...], Least] = {}

    def of(
        self, candidate: Candidate, chosen: Parallelism, options: Options, cluster: Cluster | None
    ) -> Bound:
        """Return the bound of a plan without a compile of it. Raises what a capture raises.

        ``chosen``: the plan's options of parallelism, which ``options`` are part of.
        """
        least = self.least(chosen, options)
        is_known = options.get("pipeline") is None and not candidate.schedule
        is_known &= not options.get("balance_activations")
        if chosen.shares is not None:
            state_bytes = least.state.on_device(candidate)
            return Bound(state_bytes, state_bytes=state_bytes)
        return least.of(candidate, cluster, is_known=is_known)

    def of_uncut(
        self, candidate: Candidate, chosen: Parallelism, options: Options, cluster: Cluster, looked: Uncut
    ) -> Bound:
        """Return the bound of a pipeline from its program before it is cut into stages."""
        shape, presets = Shape.of(candidate, chosen.pipeline_axis()), set(presets_of(candidate).values())
        whole = self.least(chosen, options).trains_all
        whole &= not presets.intersection(("zero2", "zero3", *CONTEXT_PRESETS))
        held = looked.held
        if options.get("offload") == "optimizer":
            held = [replace(holding, state_bytes=0) for holding in held]
        costs, layers = (
            fastest_costs_on(cluster, candidate.mesh, chosen.pipeline_axis()),
            self._versions.whole[0][0] - FEW,
        )
        seconds = step_s(looked.shallow.step, looked.deeper.step, layers, costs, shape)
        return Bound(fullest_bytes(held, shape, has_whole_sums=whole), seconds)

    def least(self, chosen: Parallelism, options: Options) -> Least:
        """Return the lower bounds of plans with these options. Raises what a capture raises."""
        key = chosen.recompute, chosen.memory_budget is None, bool(chosen.pipeline_axis())
        if key not in self._least:
            with collection_paused():
                self._least[key] = self._make(chosen)
        least = self._least[key]
        if options.get("offload") == "optimizer":
            return replace(least, state=replace(least.state, state_bytes=0.0))
        return least

    def _make(self, options: Parallelism) -> Least:
        versions, arguments = self._versions, list[TensorSpec]()

        def single(periods: Periods) -> SingleStep:
            capture = versions.captured(periods, options)
            arguments[:] = capture.arguments
            is_known = options.recompute == "none" or bool(capture.noted)
            is_known &= options.memory_budget is None
            recompute = options.recompute if is_known else "none"
            program = ingest_capture(capture, recompute=recompute).program
            assert program is not None
            found = SingleStep.of(program)
            return found if is_known else replace(found, kept=Kept())

        try:
            shallow = single(versions.even(FEW))
        except ShardcError as error:
            if not versions.runs:
                raise
            versions.not_few(error)
            shallow = single(versions.whole)
        counts = [(r, s, count) for r, run in enumerate(versions.whole) for s, count in enumerate(run)]
        deeper = [single(versions.deepened(FEW, r, s)) for r, s, _ in counts]
        sizes = (p.numel() * p.itemsize for p in versions.question.model.parameters())
        state = LeastState.of(arguments, sum(sizes))
        return Least(state, shallow, deeper, [(count - FEW) // (MORE - FEW) for _, _, count in counts])
