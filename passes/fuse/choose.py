"""Which matmuls are parts of kernels, where that is decided for each piece of a program by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch_mlir import ir

from shardc.dialects.kern.strides import Strides
from shardc.passes.fuse.group import group
from shardc.passes.fuse.lower_matmul import TARGETS
from shardc.passes.fuse.piece import Choose, find_pieces, is_asked, matmul_flops
from shardc.passes.fuse.read import Block
from shardc.passes.fuse.unit import make_units, release
from shardc.passes.fuse.wishes import BlockWishes, Wishes

Read = Callable[[frozenset[str | int]], Block]
"""Reads a block, with what is to stay: targets, and numbers of calls."""


def divide_matmuls(
    number: int, read: Read, choose: Choose, wishes: Wishes, strides: Mapping[ir.Value, Strides]
) -> tuple[frozenset[int], frozenset[int]]:
    """The matmuls of block ``number`` that stay calls, and those that become parts of kernels.

    The latter are those for which ``choose`` says so, and those that users force into a kernel with other ops.
    """
    whole = read(frozenset())
    steps = {step.number: step for step in whole.steps if step.target in TARGETS and step.nodes}
    matmuls, wished = frozenset(steps), wishes.in_block(number, whole.steps)
    found = {call for pairs in wished.forced.values() for pair in pairs for call in pair if call in matmuls}
    contractions = (node for step in steps.values() for node in step.nodes if node.contracts)
    if not any(is_asked(matmul_flops(node), choose) for node in contractions):
        release(whole)
        return matmuls - found, frozenset(found)
    parted = read(TARGETS)
    together, apart = make_units(whole), make_units(parted)
    for units in (together, apart):
        group(units, BlockWishes(wished.forbidden))
    for piece in find_pieces(number, whole, together, apart, strides, choose):
        calls = {int(matmul.partition(".")[2]) for matmul in piece.calls}
        if calls.isdisjoint(found) and choose(piece).generated:
            found |= calls
    for block, units in ((whole, together), (parted, apart)):
        release(block, units)
    return matmuls - found, frozenset(found)
