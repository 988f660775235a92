"""Calls that take parts of a dim or put parts together: which elements of the large tensor each
small one is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from shardc.dialects.dist.interleaving import Parts
from shardc.passes.interleave.fused import sliced
from shardc.passes.manager.program import Node

CAT, PAD, SLICE = "aten.cat", "aten.constant_pad_nd", "aten.slice.Tensor"


@dataclass(frozen=True)
class Move:
    """Along ``dim`` the small tensors are the elements ``ranges`` of the large one:
    its operand, if ``takes``, or its result.
    """

    dim: int
    ranges: tuple[tuple[int, int], ...]
    takes: bool

    def parts(self, whole: Parts) -> list[Parts] | None:
        """Those of each small tensor where the large one is stored as ``whole``;
        None where they do not end together.
        """
        found = [whole.between(*r) for r in self.ranges]
        return None if None in found else [p for p in found if p is not None]


def read_move(node: Node) -> Move | None:
    """None for other calls, and for those along several dims."""
    spec = node.spec
    if spec.target == SLICE:
        dim = spec["dim"] % len(spec["self"].shape)
        part = sliced(node, dim)
        return None if part is None else Move(dim, (part,), True)
    if spec.target == CAT:
        shapes = [t.shape for t in spec.tensors]
        dim = spec["dim"] % len(spec.results[0].shape)
        if any(len(shape) != len(spec.results[0].shape) for shape in shapes):
            return None
        ends = [sum(shape[dim] for shape in shapes[:n]) for n in range(len(shapes) + 1)]
        return Move(dim, tuple(pairwise(ends)), False)
    if spec.target == PAD:
        pads, rank = spec["pad"], len(spec["self"].shape)
        padded = [n for n in range(len(pads) // 2) if any(pads[2 * n : 2 * n + 2])]
        if len(padded) != 1 or any(n < 0 for n in pads):
            return None
        dim, before = rank - 1 - padded[0], pads[2 * padded[0]]
        return Move(dim, ((before, before + spec["self"].shape[dim]),), False)
    return None
