"""Calls that slice or concatenate parts of a dim, with the elements of the large tensor in each part."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from shardc.dialects.dist.interleaving import Parts
from shardc.passes.interleave.fused import sliced
from shardc.passes.manager.program import Node


@dataclass(frozen=True)
class PartsMove:
    """Along ``dim`` the small tensors are the elements ``ranges`` of the large one.

    The large one is the call's operand, if ``takes``, or its result.
    """

    dim: int
    ranges: tuple[tuple[int, int], ...]
    takes: bool

    def parts(self, whole: Parts) -> list[Parts] | None:
        """Those of each small tensor if the large one is stored as ``whole``; None if ends do not meet."""
        found = [p for r in self.ranges if (p := whole.between(*r)) is not None]
        return found if len(found) == len(self.ranges) else None


def read_move(node: Node) -> PartsMove | None:
    """None for other calls, and for those along several dims."""
    spec = node.spec
    if spec.target == "aten.slice.Tensor":
        dim = spec["dim"] % len(spec["self"].shape)
        part = sliced(node, dim)
        return None if part is None else PartsMove(dim, (part,), True)
    if spec.target == "aten.cat":
        shapes = [t.shape for t in spec.tensors]
        rank = max(map(len, shapes))
        dim = spec["dim"] % rank
        if any(len(shape) != rank for shape in shapes):
            return None
        ends = itertools.accumulate((shape[dim] for shape in shapes), initial=0)
        return PartsMove(dim, tuple(itertools.pairwise(ends)), False)
    if spec.target == "aten.constant_pad_nd":
        pads, rank = spec["pad"], len(spec["self"].shape)
        padded = [n for n in range(len(pads) // 2) if any(pads[2 * n : 2 * n + 2])]
        if len(padded) != 1 or any(n < 0 for n in pads):
            return None
        dim, before = rank - 1 - padded[0], pads[2 * padded[0]]
        return PartsMove(dim, ((before, before + spec["self"].shape[dim]),), False)
    return None
