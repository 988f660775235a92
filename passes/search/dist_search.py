"""``dist-search``: chooses the sharding of each call by search, instead of a plan and propagation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod
from statistics import fmean
from typing import ClassVar

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.mapping import Placement
from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import ONE_F_ONE_B, ScheduleForm
from shardc.diagnostics.base import remark
from shardc.diagnostics.cli import BadPassOption
from shardc.diagnostics.passes.search import NoPlanFound, NoPlanYet
from shardc.diagnostics.text import size_text
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.search.choose import EXACT, SEARCHERS, Unfit, search, write
from shardc.passes.search.clock import Clock
from shardc.passes.search.layered import LayeredCuts
from shardc.passes.search.saved import SavedCuts
from shardc.passes.search.step.facts import StepFacts
from shardc.passes.search.step.graph_on import graph_on
from shardc.passes.search.step.on_mesh import StepOnMesh


@dataclass(frozen=True)
class DistSearch(ReadingPass):
    """Chooses the factor that each mesh axis splits in each call, by a search over the calls' rules.

    Writes layouts of arguments and ``dist.cuts`` of calls (``passes/search``). ``searcher``: ``exact``, or
    one of ``passes/search/searchers``, which give no bound. ``on``: the cluster whose devices and links are
    priced; default: the one called ``cluster``. ``pipeline``: the axis of stages, which splits no call;
    ``form``: their schedule; ``speeds``: relative speeds of their ranks. ``seconds``: time limit, after which
    the best result so far is used. ``hears``: whether the first Ctrl-C also ends the search. ``saved``:
    result of an earlier search of this program, or of it with few of its equal layers, which is written
    without a search.
    """

    name: ClassVar[str] = "dist-search"
    cluster: str = "h100"
    searcher: str = EXACT
    on: Cluster | None = None
    pipeline: str = ""
    form: ScheduleForm = ONE_F_ONE_B
    speeds: tuple[float, ...] = ()
    seconds: float = inf
    hears: bool = False
    saved: SavedCuts | LayeredCuts | None = None

    def apply(self, reading: Reading) -> bool:
        if self.saved is not None:
            mesh, program = reading.sharded(level=1)
            write(program, mesh, self.saved.read(program, mesh, self.pipeline), self.pipeline)
            return False
        if self.searcher not in SEARCHERS:
            expected = f"one of {', '.join(SEARCHERS)}"
            raise BadPassOption(pass_name=self.name, option="searcher", text=self.searcher, expected=expected)
        mesh, program = reading.sharded(level=1)
        clock, sizes = Clock(self.seconds, hears=self.hears), {axis.name: axis.size for axis in mesh.space}
        capacity = capacity_of(self._cluster, sizes, self.pipeline)
        with clock.running():
            step = StepOnMesh(StepFacts.of(program), mesh, self.pipeline)
            graph = graph_on(step, self._cluster, self.form, self.speeds)
            found = search(graph, capacity, self.searcher, explain="runners-up", clock=clock)
        if isinstance(found, Unfit):
            raise why_none(found, capacity, mesh.world_size)
        write(program, mesh, found.chosen, self.pipeline)
        if found.answer is not None:
            found.answer.write(program.module)
            remark("Searched", found.answer.certificate())
        return False

    @property
    def _cluster(self) -> Cluster:
        return self.on or find_cluster(self.cluster)


def why_none(found: Unfit, capacity_bytes: float, devices: int) -> NoPlanYet | NoPlanFound:
    """Return the error of a search on so many devices of ``capacity_bytes`` that found no plan."""
    if found.why:
        return NoPlanYet(why=found.why)
    least = least_text(found.least * capacity_bytes, capacity_bytes)
    return NoPlanFound(devices=devices, memory=size_text(capacity_bytes), least=least)


def least_text(least_bytes: float, capacity_bytes: float) -> str:
    """Return text on the memory that a device needs at least; empty if it has as much."""
    return f": any plan needs at least {size_text(least_bytes)} on each" * (least_bytes > capacity_bytes)


def capacity_of(cluster: Cluster, mesh: Mapping[str, int], pipe: str = "") -> float:
    """Return the memory of the smallest device in bytes.

    If stages along ``pipe`` have several kinds of device, it is the mean of the stages' smallest devices: a
    search counts the mean of what stages hold. Raises MeshDoesNotFit.
    """
    if not pipe or len(cluster.devices) == 1:
        return min(device.memory_bytes for device in cluster.used(prod(mesh.values())))
    stages = Placement.of(cluster, mesh).kinds_along(pipe)
    return fmean(min(device.memory_bytes for device in kinds) for kinds in stages)
