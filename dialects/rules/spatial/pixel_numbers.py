"""Conversion of flat indices of pixels between a rank's block and the whole image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from shardc.dialects.rules.rule import Local


@dataclass(frozen=True)
class Block:
    """A rank's block of a dim of pixels, extended by its halo.

    Its first pixel is pixel ``step * offset + first`` of the whole dim, with the rank's offset over
    ``factor``.
    """

    factor: str
    step: int
    first: int


def renumbered(
    local: Local, index: Any, have: Sequence[int], want: Sequence[int], blocks: Mapping[int, Block], sign: int
) -> Any:
    """Convert flat indices of pixels in images of sizes ``have`` to images of sizes ``want``.

    These are the sizes of a rank's extended block and of the whole image; with ``sign`` -1 the reverse.
    ``blocks`` has the split dims.
    """
    below = {d: sign * prod(want[d + 1 :]) for d in blocks}
    start: Any = sum(block.first * below[d] for d, block in blocks.items())
    for d, block in blocks.items():
        start = local.offset(block.factor, block.step * below[d], start)
    if have[1:] != want[1:]:
        index = _spread(local, index, have, want)
    return local.emit("aten.add.Scalar", index, start, 1)


def _spread(local: Local, index: Any, have: Sequence[int], want: Sequence[int]) -> Any:
    """Convert flat indices for other row lengths: each earlier row, plane, ... shifts them by the
    difference.
    """
    made = index
    for d in range(1, len(have)):
        if more := (want[d] - have[d]) * prod(want[d + 1 :]):
            rows = local.emit("aten.div.Scalar_mode", index, prod(have[d:]), "floor")
            made = local.emit("aten.add.Tensor", made, rows, more)
    return made
