"""Search for the shardings of all calls and arguments of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

from torch_mlir import ir

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.manager.attributes import edge_attributes, i64, set_edge_attributes
from shardc.passes.manager.program import Program
from shardc.passes.partition.given_cuts import CUTS, OVER, PASSES, write_kept
from shardc.passes.search.answer.answer import Answer
from shardc.passes.search.answer.explain import Explain, explained
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.chosen import Chosen, chosen_of
from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.layered import LayeredCuts
from shardc.passes.search.layout import sharding_of
from shardc.passes.search.searchers.annealing import annealing
from shardc.passes.search.searchers.greedy import greedy
from shardc.passes.search.searchers.layers import layers
from shardc.passes.search.searchers.randomly import random_restarts
from shardc.passes.search.searchers.searcher import Budget, Searcher
from shardc.passes.search.solver.branch import solve_in_parts
from shardc.passes.search.solver.solve import NoSolution, Solution
from shardc.passes.search.step.step_graph import StepGraph

EXACT = "exact"


_Solve = Callable[[Graph, float, float, Clock], Solution | NoSolution]


def _by(searcher: Searcher) -> _Solve:
    """Return a solver that runs a searcher without a bound for its time."""

    def found(graph: Graph, capacity: float, cutoff_s: float, clock: Clock) -> Solution | NoSolution:
        best = searcher(graph, Budget(capacity, clock=clock))
        if best.chosen is None:
            return NoSolution()
        return Solution(best.chosen, best.seconds, 0.0, "it has no bound")

    return found


SEARCHERS: Mapping[str, _Solve] = {
    EXACT: solve_in_parts,
    "annealing": _by(annealing),
    "greedy": _by(greedy),
    "layers": _by(layers),
    "random": _by(random_restarts),
}
"""Name -> searcher for states of a graph under a memory limit."""


@dataclass(frozen=True)
class Kept:
    """What a rank of a pipeline keeps for a micro-batch from forward to backward, as a mean over ranks.

    ``size_bytes``: with what was chosen. ``least_bytes``: at least, whatever is chosen. ``forward_part``:
    part of the time of forward and backward that forward takes.
    """

    size_bytes: float
    least_bytes: float
    forward_part: float


@dataclass(frozen=True)
class Found:
    """Result of a search: what was chosen for calls and arguments, and the certificate.

    ``nodes`` is the number of choices, ``held_bytes`` the most bytes that a device holds at a point.
    ``floor_s`` is a lower bound: the time of forward and backward if each call is split in its fastest way
    and nothing is sent; ``floor_weights_s`` is the part of calls that only gradients of weights need. If an
    explanation was requested, it is ``answer``, and ``layered`` has the choices for programs with more or
    fewer of the equal layers. ``kept``: what ranks keep, under schedules that keep some of it on other ranks.
    """

    chosen: Chosen
    solution: Solution
    nodes: int
    held_bytes: float
    floor_s: float = 0.0
    answer: Answer | None = None
    layered: LayeredCuts | None = None
    floor_weights_s: float = 0.0
    kept: Kept | None = None


@dataclass(frozen=True)
class Unfit:
    """Result of a search that found no plan that fits, or none that is fast enough.

    All plans that fit take at least ``bound_s``. ``least`` is the part of the memory that any sharding needs
    at least, more than 1 if none fits. ``floor_s`` and ``floor_weights_s`` are as in :class:`Found`. ``why``
    says why the search stopped before a proof; empty if there is a proof. All plans, whether they fit or not,
    take at least ``free_s``. ``kept`` is as in :class:`Found`, with the least that is kept.
    """

    least: float
    floor_s: float
    bound_s: float = inf
    why: str = ""
    free_s: float = 0.0
    floor_weights_s: float = 0.0
    kept: Kept | None = None


def search(
    step: StepGraph,
    capacity: float,
    searcher: str = EXACT,
    cutoff_s: float = inf,
    *,
    explain: Explain = "",
    clock: Clock | None = None,
    known: Solution | None = None,
) -> Found | Unfit:
    """Search for the cheapest shardings of a step's calls under a limit of ``capacity`` bytes for each
    device.

    The cost is the seconds of calls, and of collectives that calls do not hide. ``searcher`` is one of
    ``SEARCHERS``. The search ends with Unfit, too, if no sharding takes less than ``cutoff_s``. ``explain``
    adds an answer, and the choices for programs with more or fewer layers. ``clock`` ends the search with the
    best result so far. ``known``: the solution that an earlier search found under the same limit.
    """
    clock = clock or Clock()
    solution = known or SEARCHERS[searcher](step.graph, capacity, cutoff_s, clock)
    if known is not None and step.others:
        solution = replace(known, seconds=step.graph.total(known.chosen))
    least = step.graph.least_bytes / capacity
    free_s = max(solution.free_s, step.floor_s)
    if isinstance(solution, NoSolution) or solution.bound_s >= cutoff_s:
        bound_s = max(solution.bound_s, free_s)
        is_open = isinstance(solution, NoSolution) and bound_s < cutoff_s
        why = clock.why if is_open and clock.is_over else ""
        kept = least_kept(step) if step.axes.form.balances else None
        return Unfit(least, step.floor_s, bound_s, why, free_s, step.floor_weights_s, kept)
    solution = replace(solution, bound_s=max(solution.bound_s, step.floor_s), free_s=free_s)
    answer = None
    if explain:
        solution, answer = explained(step, solution, capacity, clock, explain)
    if step.others:
        solution = replace(solution, seconds=step.slowest_s(solution.chosen))
        answer = answer and replace(answer, seconds=solution.seconds)
    held = float(max(step.graph.bytes_at(solution.chosen)))
    chosen = chosen_of(step, solution.chosen)
    layered = LayeredCuts.of(step.program, chosen) if explain else None
    floors = {"floor_s": step.floor_s, "floor_weights_s": step.floor_weights_s}
    kept = least_kept(step) if step.axes.form.balances else None
    if kept is not None:
        pairs = zip(step.kept, solution.chosen, strict=True)
        kept = replace(kept, size_bytes=sum(float(size[state]) for size, state in pairs))
    more = {"answer": answer, "layered": layered, "kept": kept}
    return Found(chosen, solution, len(step.graph.costs), held, **more, **floors)


def least_kept(step: StepGraph) -> Kept:
    """Return the least that ranks keep, whatever is chosen."""
    least_bytes = sum(float(size.min()) for size in step.kept)
    return Kept(least_bytes, least_bytes, step.forward_part)


def write(program: Program, mesh: Mesh, chosen: Chosen, pipeline: str = "") -> None:
    """Write shardings to the IR: ``dist.sharding`` of arguments, and ``dist.cuts`` and similar of calls."""
    context = program.module.context
    codec = ShardingCodec(context, mesh)
    axes = SearchAxes.of(mesh, pipeline).axes
    for node, way, kept in zip(program.nodes, chosen.ways, chosen.kept, strict=True):
        cuts = {f: codec.axes(a) for f, a in way.cuts(axes).items()}
        node.op.attributes[CUTS] = ir.DictAttr.get(cuts, context)
        number, over = way.passing()
        if number is not None:
            node.op.attributes[PASSES] = i64(number, context)
            node.op.attributes[OVER] = codec.axes(tuple(axes[n] for n in over))
        made = [
            sharding_of(layout, len(program.types[value].shape), axes).without_partial()
            for layout, value in zip(way.results, node.results, strict=True)
        ]
        node.op.attributes["dist.shardings"] = codec.array(made)
        types = [program.types[value] for value in node.results]
        shards = {number: sharding_of(layout, len(types[number].shape), axes) for number, layout in kept}
        write_kept(node.op, shards, codec)
    rows = []
    for position, layout in enumerate(chosen.arguments):
        row = edge_attributes(program.function, "arg_attrs", position)
        if mesh.shares and program.argument_key(position)[0] == "input":
            rows.append(row)  # the plan splits it into shares
            continue
        rank = len(program.types[program.arguments[position]].shape)
        row["dist.sharding"] = codec.write(sharding_of(layout, rank, axes))
        row["dist.why"] = ir.StringAttr.get("searched", context)
        if (
            program.argument_key(position)[0] == "param"
        ):  # gathered in each phase where the shard is too little
            row["dist.priorities"] = ir.DictAttr.get({}, context)
        rows.append(row)
    set_edge_attributes(program.function, "arg_attrs", rows)
