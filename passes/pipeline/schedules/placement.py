"""Placement of stages on ranks."""

from __future__ import annotations


def round_robin(rank: int, ranks: int, stages_per_rank: int) -> list[int]:
    """Return a rank's stages if stages go to the ranks in order, again and again (interleaved 1F1B)."""
    return list(range(rank, ranks * stages_per_rank, ranks))


def zigzag(rank: int, ranks: int, stages_per_rank: int) -> list[int]:
    """Return a rank's stages if stages go to the ranks in order, then in reverse, and so on: a V for two a
    rank.

    At each turn one rank holds two consecutive stages, so nothing is sent between them.
    """
    return [ranks * turn + (ranks - 1 - rank if turn % 2 else rank) for turn in range(stages_per_rank)]
