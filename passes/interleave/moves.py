"""``PartsMove``: calls that slice or concatenate a dim, with the range of each part in the large tensor."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from shardc.dialects.dist.interleaving import Parts
from shardc.passes.interleave.fused import sliced
from shardc.passes.manager.program import Node


@dataclass(frozen=True)
class PartsMove:
    """Relation of a large tensor and small tensors, which are its elements ``ranges`` along ``dim``.

    The large tensor is the call's operand if ``takes``, else its result.
    """

    dim: int
    ranges: tuple[tuple[int, int], ...]
    takes: bool

    def parts(self, whole: Parts) -> list[Parts] | None:
        """Return the parts of each small tensor if the large one is stored as ``whole``.

        None if a range does not begin and end between parts.
        """
        found = [p for r in self.ranges if (p := whole.between(*r)) is not None]
        return found if len(found) == len(self.ranges) else None


def read_move(node: Node) -> PartsMove | None:
    """Return the move of a slice, concatenation or pad along one dim; None for other calls."""
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
