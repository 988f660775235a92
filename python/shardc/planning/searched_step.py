"""A captured step in which plans are searched, on one mesh after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch_mlir import ir

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.schedule_form import ScheduleForm
from shardc.dialects.dist.mesh import Mesh
from shardc.frontend.step.spec import Capture
from shardc.options.recompute import Policy
from shardc.passes.manager.program import copy_module, find_function
from shardc.passes.manager.reading import Reading
from shardc.passes.search.fold import More
from shardc.passes.search.step.facts import StepFacts
from shardc.passes.search.step.graph_on import graph_on
from shardc.passes.search.step.least_memory import LeastMemory
from shardc.passes.search.step.on_mesh import StepOnMesh
from shardc.passes.search.step.step_graph import StepGraph
from shardc.runtime.report import progress
from shardc.step.shard import ingest_capture, lay_out

KEPT = 4
"""Number of meshes whose ways are kept, for other schedules."""
_SMALL = 2
"""Size of all axes of a small mesh."""


class SearchedStep:
    """A captured step at level 1, with what is recomputed.

    The passes before a search mostly change attributes alone. Then all meshes share one reading of the
    program; otherwise a mesh gets a copy.

    Args:
        capture: Captured step, whose module is changed.
        recompute: Recomputation policy.
        more: Equal layers that the capture left out.
    """

    def __init__(self, capture: Capture, recompute: Policy, more: More) -> None:
        self._level_1, self._more = ingest_capture(capture, recompute=recompute).module, more
        self._shared: dict[bool, _Shared] = {}
        """Readings for meshes with and without an axis of time, which has rules of its own."""
        self._laid_out: dict[tuple[Mesh, str], StepOnMesh] = {}
        self._known: dict[tuple[str, tuple[str, ...]], StepOnMesh | None] = {}
        """The step on small meshes, by plan and names of axes."""
        self._least: dict[bool, LeastMemory] = {}

    @progress.phase("search")
    def graph(
        self, mesh: Mesh, plan: str, cluster: Cluster, form: ScheduleForm, speeds: Sequence[float]
    ) -> StepGraph:
        """Return the graph of choices of a plan, ``auto`` or a product of it with a pipeline.

        ``form``: the schedule of stages. ``speeds``: relative speeds of their ranks. Raises NotFolded.
        """
        return graph_on(self._on(mesh, plan), cluster, form, speeds)

    @progress.phase("search")
    def least_memory(self, mesh: Mesh, plan: str) -> LeastMemory:
        """Return what any plan on a mesh holds, at least.

        It also holds for other meshes: those with an axis of time if this one has one, else those without.
        """
        is_timed = _is_timed(mesh)
        if is_timed not in self._least:
            self._least[is_timed] = LeastMemory.of(self._on(mesh, plan))
        return self._least[is_timed]

    def read(self, mesh: Mesh, plan: str, form: ScheduleForm, stages: int) -> None:
        """Read what all meshes with axes of these names share, so that other processes have it.

        ``form``: a schedule of so many ``stages``.
        """
        known = None if mesh.shares else self._small(mesh, plan)
        if known is not None:
            known.facts.read(form, stages)

    def _on(self, mesh: Mesh, plan: str) -> StepOnMesh:
        key = mesh, plan
        step = self._laid_out.pop(key, None) or self._lay_out(mesh, plan)
        self._laid_out[key] = step  # as the latest
        if len(self._laid_out) > KEPT:
            del self._laid_out[next(iter(self._laid_out))]
        return step

    def _lay_out(self, mesh: Mesh, plan: str) -> StepOnMesh:
        known = None if mesh.shares else self._small(mesh, plan)
        if known is None or not known.decided.hold_on({axis.name: axis.size for axis in mesh.axes}):
            return self._read(mesh, plan)
        return StepOnMesh(known.facts, mesh, known.pipeline, known)

    def _small(self, mesh: Mesh, plan: str) -> StepOnMesh | None:
        """Return the step on a mesh with small axes of the same names; None if that changes its calls."""
        key = plan, tuple(axis.name for axis in mesh.axes)
        if key not in self._known:
            small = Mesh(tuple(replace(axis, size=_SMALL) for axis in mesh.axes))
            found = self._read(small, plan)
            shared = self._shared.get(_is_timed(mesh))
            self._known[key] = found if shared is not None and shared.facts is found.facts else None
            if self._known[key]:
                found.read()
        return self._known[key]

    def _read(self, mesh: Mesh, plan: str) -> StepOnMesh:
        """Return the step on a mesh, after the passes before a search."""
        is_timed = _is_timed(mesh)
        shared = self._shared.pop(is_timed, None) or _Shared(copy_module(self._level_1))
        chosen, reading = lay_out(shared.reading, mesh, plan)
        assert reading.program is not None
        if reading is not shared.reading:
            return StepOnMesh(StepFacts.of(reading.program, self._more), mesh, chosen.pipeline)
        shared.facts = shared.facts or StepFacts.of(reading.program, self._more)
        found = StepOnMesh(shared.facts, mesh, chosen.pipeline)
        shared.clear()
        self._shared[is_timed] = shared
        return found


def _is_timed(mesh: Mesh) -> bool:
    return any(axis.kind == "time" for axis in mesh.axes)


class _Shared:
    """A reading of a step that several meshes use, and the facts of its program."""

    facts: StepFacts | None

    def __init__(self, module: ir.Module) -> None:
        self.reading, self.facts = Reading(module), None
        function = find_function(module)
        assert function is not None
        self._given = function.attributes["arg_attrs"]

    def clear(self) -> None:
        """Remove the shardings of a mesh."""
        program = self.reading.program
        assert program is not None
        program.function.attributes["arg_attrs"] = self._given
