"""Fill-drain and 1F1B, also with several stages for each rank: orders in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardc.dialects.pipe.action import Action, Kind
from shardc.dialects.pipe.schedule import Schedule, one_route, orders
from shardc.dialects.pipe.stage_graph import Reads, StageGraph
from shardc.passes.pipeline.schedules.placement import round_robin


def fill_drain(ranks: int, micro_batches: int, reads: Reads = ()) -> Schedule:
    """All forwards, then all backwards: GPipe (Huang et al. 2019). ``reads``: what each stage reads."""
    return replace(breadth_first(ranks, micro_batches, 1), name="fill-drain", reads=reads)


def breadth_first(ranks: int, micro_batches: int, stages_per_rank: int) -> Schedule:
    """Fill-drain with several stages for each rank (Lamy-Poirier 2022).

    All micro-batches run in one stage before any runs in the next, so that parameters which are split over
    data ranks are gathered once.
    """
    lists = []
    for rank in range(ranks):
        mine = round_robin(rank, ranks, stages_per_rank)
        forward = [action for stage in mine for action in actions(stage, "F", micro_batches)]
        backward = [action for stage in reversed(mine) for action in actions(stage, "B", micro_batches)]
        lists.append(forward + backward)
    return Schedule("breadth-first", orders(lists), one_route(ranks * stages_per_rank))


def one_f_one_b(ranks: int, micro_batches: int, reads: Reads = ()) -> Schedule:
    """1F1B with a flush (PipeDream-flush, DAPPLE): rank r runs at most ``ranks - r`` forwards ahead.

    ``reads``: what each stage reads, if stages are no chain. A stage then runs as many forwards ahead as
    there are stages on its longest path to the end.
    """
    ahead = stages_behind(ranks, reads)
    lists = [one_stage(rank, "B", micro_batches, ahead[rank]) for rank in range(ranks)]
    return Schedule("1f1b", orders(lists), one_route(ranks), reads=reads)


def stages_behind(stages: int, reads: Reads) -> Sequence[int]:
    """Return, for each stage, how many stages are behind it on the longest path. ``reads`` is empty for a
    chain.
    """
    return StageGraph(reads).behind if reads else range(stages - 1, -1, -1)


def interleaved(ranks: int, micro_batches: int, stages_per_rank: int) -> Schedule:
    """1F1B with several stages a rank, in groups of ``ranks`` micro-batches (Narayanan et al., SC21, §2.2).

    The number of micro-batches must be a multiple of ``ranks``.
    """
    lists = []
    for rank in range(ranks):
        mine = round_robin(rank, ranks, stages_per_rank)
        turns = [
            (chunk, group + m)
            for group in range(0, micro_batches, ranks)
            for chunk in range(stages_per_rank)
            for m in range(ranks)
        ]
        forward = [Action(mine[chunk], "F", m) for chunk, m in turns]
        backward = [Action(mine[-1 - chunk], "B", m) for chunk, m in turns]
        ahead = (stages_per_rank - 1) * ranks + 2 * (ranks - rank - 1)
        lists.append(alternate(forward, backward, ahead=min(ahead, len(forward))))
    return Schedule("interleaved", orders(lists), one_route(ranks * stages_per_rank))


def actions(stage: int, kind: Kind, micro_batches: int) -> list[Action]:
    """Return a stage's actions of one kind, for each micro-batch in order."""
    return [Action(stage, kind, m) for m in range(micro_batches)]


def one_stage(stage: int, backward: Kind, micro_batches: int, ahead: int) -> list[Action]:
    """Return a stage's forwards, alternating with its ``backward`` actions, at most ``ahead`` forwards
    ahead.
    """
    rows = [actions(stage, kind, micro_batches) for kind in ("F", backward)]
    return alternate(*rows, ahead=min(ahead, micro_batches))


def furthest_first(
    stages: Sequence[int], backward: Kind, micro_batches: int, backward_first: bool
) -> list[list[Action]]:
    """Return the queues of a rank that prefers forwards of its last stage and backwards of its first."""
    backwards = [actions(stage, backward, micro_batches) for stage in stages]
    forwards = [actions(stage, "F", micro_batches) for stage in reversed(stages)]
    return backwards + forwards if backward_first else forwards + backwards


def alternate(forward: list[Action], backward: list[Action], ahead: int) -> list[Action]:
    """Return ``ahead`` forwards, then forwards and backwards in turn, then the remaining backwards."""
    steady = [action for pair in zip(forward[ahead:], backward, strict=False) for action in pair]
    return forward[:ahead] + steady + backward[len(forward) - ahead :]
