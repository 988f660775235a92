"""Receives of a pipeline start ahead of the action before them."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.backends.torch.step import Step

PIPE = frozenset(("pipe.action", "pipe.send", "pipe.receive"))
POST = "pipe.post"
"""The start of a receive, for which the ``pipe.receive`` then waits."""


def post_receives(steps: Sequence[Step]) -> list[Step]:
    """The steps with each receive started ahead of the action before it, so that it travels while that
    computes, and waited for right before what reads it first.

    Between two ranks transfers start in the order of the passes, the same on both sides: a receive does not
    pass what goes to or comes from the same rank. So messages need no tags, and each pair of ranks may run
    them in order.
    """
    readers: dict[ir.Value, int] = {}
    waits: dict[int, list[Step]] = {}
    for number, step in reversed(list(enumerate(steps))):
        if step.name == "pipe.receive":
            first = min((readers[v] for v in step.results if v in readers), default=len(steps))
            waits.setdefault(first, []).append(step)
        readers.update(dict.fromkeys(step.operands, number))
    found: list[Step] = []
    for number, step in enumerate(steps):
        found += reversed(waits.get(number, []))
        if step.name == "pipe.receive":
            found.insert(_start(found, _peer(step)), Step(step.op, POST, None, [], []))
        else:
            found.append(step)
    return found + waits.get(len(steps), [])[::-1]


def _start(steps: Sequence[Step], peer: int) -> int:
    """Where a receive from ``peer`` that stands behind ``steps`` starts."""
    at = len(steps)
    while at and not (steps[at - 1].name in ("pipe.send", POST) and _peer(steps[at - 1]) == peer):
        at -= 1
        if steps[at].name == "pipe.action":
            return at
    return len(steps)


def _peer(step: Step) -> int:
    """The other rank of a transfer."""
    return ir.IntegerAttr(step.op.attributes["to" if step.name == "pipe.send" else "source"]).value
