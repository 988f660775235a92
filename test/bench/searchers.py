"""Results and times of each searcher on one step's graph of choices.

    python test/bench/searchers.py config.json --cluster h100-8x8 --mesh data=8,tensor=8 --batch 16

Costs are those of the search's own count (``passes/search``): seconds of a step, lower is better, beside the
bound below which no choice gets. Searchers without a bound run for ``--seconds`` each.
"""

from __future__ import annotations

import argparse
from math import inf
from pathlib import Path
from time import perf_counter

import torch
from machine import heading, table

from shardc.compiler.local_cluster import cluster_of
from shardc.options.parallelism import parse_mesh
from shardc.passes.search import choose
from shardc.passes.search.graph import Graph
from shardc.passes.search.searchers.annealing import annealing
from shardc.passes.search.searchers.greedy import greedy
from shardc.passes.search.searchers.layers import layers
from shardc.passes.search.searchers.randomly import random_restarts
from shardc.passes.search.searchers.searcher import Budget
from shardc.passes.search.solver.overlap import solve_overlapped
from shardc.passes.search.solver.solve import NoSolution
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Sizes, read_config

SEARCHERS = {"annealing": annealing, "greedy": greedy, "layers": layers, "random": random_restarts}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--mesh", type=parse_mesh, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    cluster = cluster_of(given.cluster)
    capacity = min(device.memory_bytes for device in cluster.devices)
    graph = _graph(given, cluster)
    print(heading(f"Searchers: {given.config.stem}, {given.cluster}"))
    print(f"{len(graph.costs):,} choices, {len(graph.edges) + len(graph.late):,} edges\n")
    start_s = perf_counter()
    exact = solve_overlapped(graph, capacity)
    if isinstance(exact, NoSolution):
        raise SystemExit("the exact search found nothing that fits")
    rows = [_row("exact", exact.seconds, exact.seconds, perf_counter() - start_s)]
    rows.append(_row("bound", exact.bound_s, exact.seconds, 0.0))
    for name, searcher in SEARCHERS.items():
        start_s = perf_counter()
        found = searcher(graph, Budget(capacity, given.seconds)).seconds
        rows.append(_row(name, found, exact.seconds, perf_counter() - start_s))
    print(table(("searcher", "ms a step", "of the exact", "s"), rows))


def _row(name: str, seconds: float, exact_s: float, spent_s: float) -> tuple[str, str, str, str]:
    found = "none that fits" if seconds == inf else f"{seconds * 1e3:.3f}"
    return name, found, f"{seconds / exact_s:.3f}", f"{spent_s:.1f}"


def _graph(given: argparse.Namespace, cluster: object) -> Graph:
    """The graph that a compile of the plan ``auto`` searches."""
    question = read_config(given.config, Sizes(given.batch, given.length), torch.bfloat16)
    kept: list[Graph] = []
    searched = choose.SEARCHERS[choose.EXACT]

    def keep(graph: Graph, *limits: object) -> object:
        kept.append(graph)
        return searched(graph, *limits)

    choose.SEARCHERS = {**choose.SEARCHERS, choose.EXACT: keep}
    Pricer(question, cluster=cluster).programs.compiled(Candidate(given.mesh, "auto"))
    return kept[0]


if __name__ == "__main__":
    main()
