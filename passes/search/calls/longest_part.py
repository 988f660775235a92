"""Part of a forward's work on its longest path, if stages of different towers are beside each other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from shardc.cost.work import computed_flops
from shardc.passes.manager.program import Program
from shardc.passes.pipeline.cuts.towers import Run, Towers
from shardc.passes.search.calls.crossing import forward_calls, reached
from shardc.passes.search.fold import Folded


def longest_part(program: Program, folded: Folded, stages: int) -> float:
    """Return the part of the forward's FLOP on its longest path; 1 without towers of about a stage's work.

    Stages are taken as equally long, so that only a tower with the work of a stage is beside others. Where
    towers mix, the path is that of single calls, which is shorter.
    """
    calls, sources, work = _forward(program)
    towers = Towers(sources, work, stages, _runs(program, folded, calls, work))
    if not towers.found:
        return 1.0
    if not towers.are_mixed:
        return towers.longest_part()
    whole, ends = [w * folded.weights[n] for n, w in zip(calls, work, strict=True)], list[float]()
    for own, read in zip(whole, sources, strict=True):
        ends.append(own + max((ends[source] for source in read), default=0.0))
    return max(ends) / sum(whole)


def has_towers(program: Program, stages: int) -> bool:
    """Return whether a program has towers of about a stage's work."""
    _, sources, work = _forward(program)
    return bool(Towers(sources, work, stages).found)


def _forward(program: Program) -> tuple[list[int], list[list[int]], list[float]]:
    """Return forward's calls that depend on parameters, what each reads by place among them, and their
    FLOP.
    """
    nodes, forward = program.nodes, forward_calls(program)
    bound = reached(program, forward, "param")
    calls = [number for number in forward if bound.intersection(nodes[number].operands)]
    made = {value: place for place, number in enumerate(calls) for value in nodes[number].results}
    sources = [list(dict.fromkeys(made[v] for v in nodes[n].operands if v in made)) for n in calls]
    work = [0.0 if nodes[n].op.name.startswith("dist.") else computed_flops(nodes[n].spec) for n in calls]
    return calls, sources, work


def _runs(program: Program, folded: Folded, calls: Sequence[int], work: Sequence[float]) -> list[Run]:
    """Return the layers that stand for others, by places in ``calls``."""
    found = list[Run]()
    for weight, numbers in folded.runs(forward_calls(program)):
        layer = len({folded.colours[number] for number in numbers})
        for at in range(0, len(numbers), layer) if weight != 1 else ():
            of_layer = numbers[at : at + layer]
            start, end = bisect_left(calls, of_layer[0]), bisect_left(calls, of_layer[-1] + 1)
            if start < end:
                found.append(Run(start, end, (weight - 1) * sum(work[start:end])))
    return found
