"""Schedules with two stages for each rank in a V: the first rank holds the first and the last stage.

A rank keeps a micro-batch's activations long in one of its stages and briefly in the other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from shardc.cost.pipeline import StageCost
from shardc.dialects.pipe.action import Action, Kind
from shardc.dialects.pipe.schedule import Schedule, one_route, orders
from shardc.passes.pipeline.schedules.list_scheduling import fill_holes
from shardc.passes.pipeline.schedules.placement import zigzag

PERIOD = 6
"""Time units in which a rank runs F, I and W of one micro-batch in both stages, one unit each."""

Moments = tuple[int, int, int, int]
"""Start times of micro-batch 0 on a rank: F in its first stage, F and I in its second, I in its first."""


def zb_v(ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None) -> Schedule:
    """ZB-V: no bubble if F, I and W take equal time, at 1F1B's memory (Qi et al., Zero Bubble, section 6).

    That needs ``2 * ranks`` micro-batches.
    """
    queues = [[_zb_v_order(rank, ranks, micro_batches)] for rank in range(ranks)]
    return fill_holes("zb-v", queues, 2 * ranks, costs, held=2 * ranks)


def v_half(ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None) -> Schedule:
    """V-Half: half of 1F1B's bubble, at half of its memory plus one micro-batch.

    Qi et al., Pipeline Parallelism with Controllable Memory, 2024, section 3.
    """
    late, three = 0 if ranks % 2 else 3, 3 * ranks
    block = [(2 * r, three - r - 2, three + late + 2 * r - 1, 2 * three + late - r - 2) for r in range(ranks)]
    return _repeated("v-half", micro_batches, costs, block)


def v_min(ranks: int, micro_batches: int, costs: Sequence[StageCost] | None = None) -> Schedule:
    """V-Min: the least memory, about a third of 1F1B's, at two thirds of its bubble (the same paper)."""
    late, two = 0 if ranks % 3 else 2, 2 * ranks
    block = [(r, two - r - 1, two + late + r, 2 * two + late - r - 1) for r in range(ranks)]
    return _repeated("v-min", micro_batches, costs, block)


def dual_pipe_v(ranks: int, micro_batches: int) -> Schedule:
    """DualPipe-V: a forward of one stage overlaps with a backward of the other, whose sends it hides.

    One half of DeepSeek-AI's DualPipe (V3's technical report, section 3.2.1), so that no parameters are held
    twice. Needs ``2 * ranks`` micro-batches.
    """
    lists = [list(_dual_pipe_v_order(rank, ranks, micro_batches)) for rank in range(ranks)]
    return Schedule("dualpipe-v", orders(lists), one_route(2 * ranks))


def building_block(ranks: int, down: int, up: int) -> list[Moments] | None:
    """Return the start times of each rank for passes that take ``down`` units a rank downwards and ``up``
    upwards.

    Waits at the ends are the shortest with which the block can be repeated; None if there are none. V-Min is
    1 and 1, V-Half 2 and 1, and 4 and 2 has no bubble.
    """
    waits = sorted(itertools.product(range(PERIOD), repeat=3), key=lambda wait: (sum(wait), wait))
    for last, first, again in waits:
        turn = down * (ranks - 1) + 1 + last
        back = turn + up * (ranks - 1) + 1 + first
        end = back + down * (ranks - 1) + 1 + again
        block = [
            (down * rank, turn + up * (ranks - 1 - rank), back + down * rank, end + up * (ranks - 1 - rank))
            for rank in range(ranks)
        ]
        if all(len({moment % PERIOD for moment in moments}) == len(moments) for moments in block):
            return block
    return None


def repeat_block(block: list[Moments], micro_batches: int) -> list[list[Action]]:
    """Return each rank's order of F and I: micro-batch 0 at these times, each next one ``PERIOD`` later."""
    lists = []
    for rank, moments in enumerate(block):
        first, second = zigzag(rank, len(block), 2)
        what: list[tuple[int, Kind]] = [(first, "F"), (second, "F"), (second, "I"), (first, "I")]
        timed = [
            (moment + PERIOD * m, Action(stage, kind, m))
            for m in range(micro_batches)
            for moment, (stage, kind) in zip(moments, what, strict=True)
        ]
        lists.append([action for _, action in sorted(timed)])
    return lists


def _repeated(
    name: str, micro_batches: int, costs: Sequence[StageCost] | None, block: list[Moments]
) -> Schedule:
    queues = [[order] for order in repeat_block(block, micro_batches)]
    return fill_holes(name, queues, 2 * len(block), costs, held=max(map(_held, block)))


def _held(moments: Moments) -> int:
    """Return how many stages' activations a rank holds in the repeated block, with W's in the best free
    units.
    """
    taken = {moment % PERIOD for moment in moments}
    free = [unit for unit in range(PERIOD) if unit not in taken]
    first_f, second_f, second_i, first_i = moments
    peaks = []
    for second_unit, first_unit in itertools.permutations(free):
        ends = _next(second_i, second_unit), _next(first_i, first_unit)
        spans = ((second_f, ends[0]), (first_f, ends[1]))
        peaks.append(max(sum(_overlaps(unit, *span) for span in spans) for unit in range(PERIOD)))
    return min(peaks)


def _next(moment: int, unit: int) -> int:
    """Return the first time after ``moment`` that is ``unit`` of a period."""
    return moment + 1 + (unit - moment - 1) % PERIOD


def _overlaps(unit: int, start: int, end: int) -> int:
    """Return how many of the inclusive spans ``start..end``, repeated each period, contain ``unit``."""
    return (end - unit) // PERIOD - (start - 1 - unit) // PERIOD


class _TwoStages:
    """Generator of actions of a rank's two stages, in order of micro-batches."""

    def __init__(self, rank: int, ranks: int, micro_batches: int) -> None:
        self._stages, self._micro_batches = zigzag(rank, ranks, 2), micro_batches
        self._made: Counter[tuple[int, Kind]] = Counter()

    def next(self, turn: int, kind: Kind) -> Iterator[Action]:
        """Yield the next micro-batch's action in the rank's first (0) or second stage; nothing after the
        last.
        """
        micro_batch = self._made[turn, kind]
        self._made[turn, kind] += 1
        if micro_batch < self._micro_batches:
            yield Action(self._stages[turn], kind, micro_batch)


def _zb_v_order(rank: int, ranks: int, micro_batches: int) -> list[Action]:
    """Return F and I as for at least ``2 * ranks - 1`` micro-batches, without missing micro-batches."""
    made, left = _TwoStages(rank, ranks, micro_batches), ranks - rank
    steady = max(micro_batches, 2 * ranks - 1) - (ranks + left - 1)
    phases: list[tuple[list[tuple[int, Kind]], int]] = [
        ([(0, "F")], 2 * left - 1),
        ([(1, "F"), (0, "F")], rank),
        ([(1, "F"), (1, "I")], left),
        ([(0, "F"), (0, "I"), (1, "F"), (1, "I")], steady),
        ([(0, "I"), (1, "F"), (1, "I")], left - 1),
        ([(0, "I"), (1, "I")], rank),
        ([(0, "I")], left),
    ]
    return [action for turns, times in phases for turn in turns * times for action in made.next(*turn)]


def _dual_pipe_v_order(rank: int, ranks: int, micro_batches: int) -> Iterator[Action]:
    made, left = _TwoStages(rank, ranks, micro_batches), ranks - rank - 1
    owed: list[Action] = []

    def backward(turn: int, split: bool = False) -> Iterator[Action]:
        """Yield a whole backward or, if ``split``, an input gradient whose weight gradient follows later."""
        for action in made.next(turn, "B"):
            if split:
                owed.append(action._replace(kind="W"))
            yield action._replace(kind="I") if split else action

    for _ in range(2 * left):
        yield from made.next(0, "F")
    for _ in range(rank + 1):
        yield from made.next(0, "F")
        yield from made.next(1, "F")
    for _ in range(left):
        yield from backward(1, split=True)
        yield owed.pop(0)
        yield from made.next(1, "F")
    for _ in range(micro_batches - 2 * ranks + rank + 1):
        yield from made.next(0, "F")
        yield from backward(1)
        yield from made.next(1, "F")
        yield from backward(0)
    for _ in range(left):
        yield from backward(1)
        yield from made.next(1, "F")
        yield from backward(0)
    half = (rank + 1) // 2
    for turn in range(rank + 1):
        yield from backward(1, split=turn > half or (turn == half and rank % 2 == 1))
        yield from backward(0, split=turn >= half)
    for _ in range(left):
        yield owed.pop(0)
        yield from backward(0, split=True)
    yield from owed
