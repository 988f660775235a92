"""Graph of a step on a cluster, whose devices may be of several kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.mapping import Placement
from shardc.cost.links import LinkModel
from shardc.cost.ops import DeviceRates
from shardc.cost.schedule_form import ONE_F_ONE_B, ScheduleForm
from shardc.cost.step.costs import Costs
from shardc.cost.step.on_cluster import costs_on, rates_of
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.calls.stage_work import fullest
from shardc.passes.search.distances import Matrix
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver import ask
from shardc.passes.search.step.on_mesh import StepOnMesh
from shardc.passes.search.step.step_graph import StepGraph


def graph_on(
    step: StepOnMesh, cluster: Cluster, form: ScheduleForm = ONE_F_ONE_B, speeds: Sequence[float] = ()
) -> StepGraph:
    """Return the graph of a step on the devices of a cluster, with a schedule of stages.

    With unequal shares it has the times of the slowest place along their axis, which all others wait for.
    With stages on several kinds of device, each time is a bound, whichever stage runs the call
    (:meth:`SearchAxes.busy`). ``speeds``: the work of their ranks; default: in proportion to peaks. Towers of
    the model are taken to be in stages beside each other. Of stages on equal devices, memory is that of the
    fullest.
    """
    ask.start()  # its imports run while the graph is built
    form = step.facts.on_stages(form, step.axes.stages)
    costs = costs_on(cluster, step.sizes, step.pipeline)
    most = 1.0 if costs.ranks else fullest(step.facts.forward_work, step.axes.stages, form)
    links, axes = LinkModel(Placement.of(cluster, step.sizes)), step.axes.under(form, most)
    if axes.shared is not None:
        places = dict.fromkeys(_places(step, cluster, axes))
        graphs = [StepGraph(step, links, rates, axes.at(runs)) for runs, rates in places]
        slowest = max(graphs, key=lambda graph: graph.floor_s)
        slowest.others = [graph.graph for graph in graphs if graph is not slowest]
        return slowest
    if costs.ranks:
        return _least([StepGraph(step, links, rates, of) for of, rates in _ranks(costs, axes, speeds)])
    return StepGraph(step, links, costs.rates, axes)


def _places(step: StepOnMesh, cluster: Cluster, axes: SearchAxes) -> Iterator[tuple[int, DeviceRates]]:
    """Yield the iterations and the rates of a device at each place along the axis with unequal shares."""
    assert axes.shared is not None
    kinds = Placement.of(cluster, step.sizes).slowest_along(axes.axes[axes.shared].name)
    for runs, kind in zip(step.trips, kinds, strict=True):
        yield runs, rates_of(kind)


def _ranks(
    costs: Costs, axes: SearchAxes, speeds: Sequence[float]
) -> Iterator[tuple[SearchAxes, DeviceRates]]:
    """Yield the axes and the rates of a rank of a pipeline for each kind of rank."""
    kinds = [rank.rates for rank in costs.ranks]
    given = speeds or [rates.half_flop_s for rates in kinds]
    means = mean_speeds(kinds, given)
    for rates in dict.fromkeys(kinds):
        yield axes.on_rank(kinds.index(rates), means), rates


def mean_speeds(kinds: Sequence[object], speeds: Sequence[float]) -> tuple[float, ...]:
    """Return the mean speed of all ranks of its kind for each rank of a pipeline."""
    pairs = [*zip(kinds, speeds, strict=True)]
    return tuple(fmean(speed for other, speed in pairs if other == kind) for kind in kinds)


def _least(graphs: Sequence[StepGraph]) -> StepGraph:
    """Return the first of several graphs of a step with the least times of all."""
    first, *_ = graphs
    all_of = [graph.graph for graph in graphs]
    first.least_s = np.min([graph.least_s for graph in graphs], axis=0).tolist()
    first.graph = Graph(
        first.graph.points,
        [np.minimum.reduce(of) for of in zip(*(graph.costs for graph in all_of), strict=True)],
        first.graph.memory,
        _least_edges([graph.edges for graph in all_of]),
        _least_edges([graph.late for graph in all_of]),
        [np.maximum.reduce(of) for of in zip(*(graph.cover for graph in all_of), strict=True)],
    )
    first.others = all_of
    return first


def _least_edges(edges: Sequence[dict[tuple[int, int], Matrix]]) -> dict[tuple[int, int], Matrix]:
    shared = set(edges[0]).intersection(*edges[1:])
    return {pair: np.minimum.reduce([of[pair] for of in edges]) for pair in edges[0] if pair in shared}
