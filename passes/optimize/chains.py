"""Chains of collectives, in which each reads the result of another, directly or through views and slices."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.passes.partition.storage import VIEWS

KINDS = ("dist.all_reduce", "dist.all_gather", "dist.reduce_scatter")
"""Collectives that can be packed."""


class Chains:
    """The chains of a block's collectives, such as a gradient scattered over one axis and reduced over
    another.

    ``depth[v]`` is the number of collectives before that of result ``v`` in its chain.
    """

    def __init__(self, ops: Sequence[ir.Operation]) -> None:
        self.depth: dict[ir.Value, int] = {}
        self._followers: list[ir.Operation] = []
        behind: dict[ir.Value, int] = {}
        for op in ops:
            if op.name in KINDS:
                before = behind.get(op.operands[0], -1)
                self.depth[op.results[0]] = behind[op.results[0]] = before + 1
                if before >= 0:
                    self._followers.append(op)
            elif _follows(op) and op.operands[0] in behind:
                behind[op.results[0]] = behind[op.operands[0]]
                self._followers.append(op)

    @property
    def longest(self) -> int:
        """Return the length of the longest chain."""
        return max(self.depth.values(), default=-1) + 1

    def settle(self) -> None:
        """Move readers of packed collectives, which now run later, behind them."""
        for op in self._followers:
            made = op.operands[0].owner.operation
            if not made.is_before_in_block(op):
                op.move_after(made)

    def forget(self, packed: set[ir.Value]) -> None:
        """Forget the results of packed collectives, before these are erased."""
        self._followers = [op for op in self._followers if op.results[0] not in packed]
        for value in packed:
            del self.depth[value]


def is_view(op: ir.Operation) -> bool:
    return op.name.removeprefix("torch.") in VIEWS


def _follows(op: ir.Operation) -> bool:
    """Return whether an op can run as late as the collective that it reads: a view, or a device's slice.

    The gradient of a parameter that is whole, and whose optimizer state is sharded, is reduced and sliced.
    """
    return is_view(op) or op.name == "dist.slice"


def first_need(
    value: ir.Value, ops: Sequence[ir.Operation], place: dict[ir.Value, int], patient: bool = False
) -> int:
    """Return the number of the first op that reads ``value``; a list counts as a reader at its position.

    If ``patient``, readers of views, slices and collectives count instead of these, because these can move
    down.
    """
    last = len(ops) - 1
    found = last
    for use in value.uses:
        user = use.owner.operation
        if not len(user.results):
            continue
        if patient and (user.name in KINDS or _follows(user)):
            found = min(found, first_need(user.results[0], ops, place, patient))
        else:
            found = min(found, place.get(user.results[0], last))
    return found
