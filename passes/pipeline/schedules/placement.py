"""Which stages a rank holds."""

from __future__ import annotations


def round_robin(rank: int, ranks: int, stages_per_rank: int) -> list[int]:
    """The first ``ranks`` stages go to the ranks in order, the next ones again (interleaved 1F1B)."""
    return list(range(rank, ranks * stages_per_rank, ranks))


def zigzag(rank: int, ranks: int, stages_per_rank: int) -> list[int]:
    """The first ``ranks`` stages go to the ranks in order, the next backwards, and so on: of two a rank, a V.

    The last rank holds a stage and the next one, and so does the first: nothing is sent between them.
    """
    return [ranks * turn + (ranks - 1 - rank if turn % 2 else rank) for turn in range(stages_per_rank)]
