"""Graphs of choices for searches of a question's plans, on a few of its equal layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TypeVar

from shardc.cost.cluster.cluster import Cluster
from shardc.options.parallelism import Parallelism
from shardc.options.presets import AUTO
from shardc.options.recompute import Policy
from shardc.options.step import StepOptions
from shardc.passes.search.choose import Found
from shardc.passes.search.fold import NotFolded
from shardc.passes.search.solver.solve import Solution
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.candidates import DATA, PIPE, Candidate
from shardc.planning.searched_step import SearchedStep
from shardc.planning.versions import Versions
from shardc.runtime.report.logs import TIMING
from shardc.step.sharding.mesh import make_mesh

_T = TypeVar("_T")
KEPT = 6
"""Number of graphs that are kept, for searches with other memory."""


class Graphs:
    """Graphs of one question's candidates on one cluster, the latest ones kept.

    ``solved``: solutions of complete searches, by the candidate's text and the bytes of a device's memory.
    ``explained``: results of such searches with the runners-up of products.
    """

    def __init__(self, versions: Versions, cluster: Cluster) -> None:
        self._versions, self._cluster = versions, cluster
        self._kept: dict[str, StepGraph] = {}
        self._steps: dict[Policy, SearchedStep] = {}
        self.solved: dict[tuple[str, float], Solution] = {}
        self.explained: dict[tuple[str, float], Found] = {}

    def of(self, candidate: Candidate) -> StepGraph:
        """Return the graph of a candidate's choices, which does not depend on the memory of devices.

        Recomputed stages are treated as recomputed layers. Raises what a capture raises.
        """
        key = replace(candidate, room=1.0).text
        found = self._kept.get(key) or self._graph(candidate)  # another thread may ask for a kept one
        self._kept.pop(key, None)
        self._kept[key] = found  # as the latest
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    def least_bytes(self, candidate: Candidate) -> float:
        """Return a lower bound of a device's memory, whatever the shardings of calls.

        Raises what a capture raises.
        """
        mesh = make_mesh(candidate.mesh, candidate.micro_batches, candidate.shares)
        least = self._with_step(candidate, lambda step: step.least_memory(mesh, candidate.plan))
        stages = candidate.mesh.get(PIPE, 1)
        parts = mesh.axes[-1].size if candidate.shares else candidate.micro_batches
        sizes = prod(candidate.mesh.values()), stages, parts
        return least.on(*sizes, candidate.form, is_equal=len(self._cluster.devices) == 1)

    def read(self, candidate: Candidate) -> None:
        """Read what candidates on meshes with axes of the same names share. Raises what a capture raises."""
        mesh = make_mesh(candidate.mesh, candidate.micro_batches, candidate.shares)
        asked = mesh, candidate.plan, candidate.form, candidate.mesh.get(PIPE, 1)
        self._with_step(candidate, lambda step: step.read(*asked))

    def _graph(self, candidate: Candidate) -> StepGraph:
        mesh = make_mesh(candidate.mesh, candidate.micro_batches, candidate.shares)
        asked = mesh, candidate.plan, self._cluster, candidate.form, candidate.speeds
        return self._with_step(candidate, lambda step: step.graph(*asked))

    def _with_step(self, candidate: Candidate, of: Callable[[SearchedStep], _T]) -> _T:
        """Return what ``of`` reads from a candidate's step, with a few of its equal layers if that works."""
        while True:
            try:
                return of(self._step(candidate))
            except NotFolded as error:
                TIMING.debug("plan: layers are not found among the calls of %s", error)
                self._versions.stands = False
                self._steps.clear()

    def _step(self, candidate: Candidate) -> SearchedStep:
        """Return the captured step with what a candidate recomputes."""
        policy = candidate.recompute or "none"
        if policy not in self._steps:
            capture, more = self._versions.few(searched_options(candidate))
            self._steps[policy] = SearchedStep(capture, policy, more)
        return self._steps[policy]


def searched_options(candidate: Candidate) -> Parallelism:
    """Return the options with which a step is captured for a search."""
    inside = {name: size for name, size in candidate.mesh.items() if name != PIPE} or {DATA: 1}
    recompute = candidate.recompute or "none"
    return StepOptions.of({"mesh": inside, "plan": AUTO, "recompute": recompute}).parallelism
