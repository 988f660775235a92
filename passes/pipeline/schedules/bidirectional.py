"""Two pipelines in opposite directions over the same ranks."""

from __future__ import annotations

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule, orders


def chimera(ranks: int, micro_batches: int) -> Schedule:
    """Even micro-batches go down the ranks, odd ones up, ``ranks`` of them in a unit (Li and Hoefler, Chimera, SC21, section 3).

    Stage ``ranks + s`` holds the same parameters as stage s, on rank ``ranks - 1 - s``; their gradients must be added.
    ``ranks`` must be even: then the two directions never want a rank at the same moment, where F and B take as long.
    """
    lists = []
    for rank in range(ranks):
        timed = []
        for direction, position in enumerate((rank, ranks - 1 - rank)):
            for turn, m in enumerate(range(direction, micro_batches, 2)):
                unit, place = divmod(turn, ranks // 2)
                start = 2 * ranks * unit + 2 * place
                stage = direction * ranks + position
                timed.append((start + position, Action(stage, "F", m)))
                timed.append((start + 2 * ranks - 1 - position, Action(stage, "B", m)))
        lists.append([action for _, action in sorted(timed)])
    return Schedule("chimera", orders(lists), (tuple(range(ranks)), tuple(range(ranks, 2 * ranks))))
