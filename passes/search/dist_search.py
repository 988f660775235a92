"""``dist-search``: chooses the sharding of each call by search, instead of a plan and propagation."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.mapping import Placement
from shardc.cost.cluster.names import find_cluster
from shardc.cost.links import LinkModel
from shardc.cost.step.on_cluster import costs_on
from shardc.diagnostics.base import remark
from shardc.diagnostics.cli import BadPassOption
from shardc.diagnostics.passes.search import NoPlanFound, NoPlanYet
from shardc.diagnostics.text import size_text
from shardc.dialects.dist.mesh import Mesh
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.search.choose import EXACT, SEARCHERS, Found, Unfit, search, step_graph, write
from shardc.passes.search.clock import Clock
from shardc.passes.search.fold import More
from shardc.passes.search.saved import SavedCuts


@dataclass(frozen=True)
class DistSearch(ReadingPass):
    """Chooses the factor that each mesh axis splits in each call, by a search over the calls' rules.

    Writes layouts of arguments and ``dist.cuts`` of calls (``passes/search``). ``searcher``: ``exact``, or
    one of ``passes/search/searchers``, which give no bound. ``on``: the cluster whose devices and links are
    priced; default: the one called ``cluster``. ``pipeline``: the axis of stages, which splits no call.
    ``more``: the number of equal layers that the real model has in addition to the program. ``seconds``: time
    limit, after which the best result so far is used. ``hears``: whether the first Ctrl-C also ends the
    search. ``saved``: result of an earlier search, which is written without a search.
    """

    name: ClassVar[str] = "dist-search"
    cluster: str = "h100"
    searcher: str = EXACT
    on: Cluster | None = None
    pipeline: str = ""
    more: More = ()
    seconds: float = inf
    hears: bool = False
    saved: SavedCuts | None = None

    def apply(self, reading: Reading) -> bool:
        if self.saved is not None:
            mesh, program = reading.sharded(level=1)
            write(program, mesh, *self.saved.read(program, mesh, self.pipeline), self.pipeline)
            return False
        clock = Clock(self.seconds, hears=self.hears)
        with clock.running():
            found = self.find(reading, explain=True, clock=clock)
        mesh, program = reading.sharded(level=1)
        if isinstance(found, Unfit):
            if found.why:
                raise NoPlanYet(why=found.why)
            memory = size_text(self._capacity(mesh))
            raise NoPlanFound(devices=mesh.world_size, memory=memory)
        write(program, mesh, found.ways, found.arguments, self.pipeline)
        if found.answer is not None:
            found.answer.write(program.module)
            remark("Searched", found.answer.certificate())
        return False

    def find(
        self,
        reading: Reading,
        cutoff_s: float = inf,
        *,
        explain: bool = False,
        clock: Clock | None = None,
    ) -> Found | Unfit:
        """Search for a plan that takes less than ``cutoff_s`` a step, until ``clock`` is over.

        ``explain`` adds an answer. Raises BadPassOption, and NotFolded for layers that stand for more.
        """
        if self.searcher not in SEARCHERS:
            expected = f"one of {', '.join(SEARCHERS)}"
            raise BadPassOption(pass_name=self.name, option="searcher", text=self.searcher, expected=expected)
        mesh, program = reading.sharded(level=1)
        cluster, capacity = self._cluster, self._capacity(mesh)
        sizes = {axis.name: axis.size for axis in mesh.space}
        rates = costs_on(cluster, sizes, self.pipeline).rates
        links = LinkModel(Placement.of(cluster, sizes))
        step = step_graph(program, mesh, links, rates, self.pipeline, self.more)
        return search(step, capacity, self.searcher, cutoff_s, explain=explain, clock=clock)

    @property
    def _cluster(self) -> Cluster:
        return self.on or find_cluster(self.cluster)

    def _capacity(self, mesh: Mesh) -> float:
        """Return the memory of the smallest device in bytes."""
        return min(device.memory_bytes for device in self._cluster.used(mesh.world_size))
