"""Early start of a pipeline's receives: before the action that precedes them."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.backends.torch.step import Step

PIPE = frozenset(("pipe.action", "pipe.send", "pipe.receive"))
POST = "pipe.post"
"""Name of the step that starts a receive. The ``pipe.receive`` then only waits."""


def post_receives(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with each receive started before the preceding action, to overlap with it.

    The wait is right before the first use. Between two ranks, transfers keep the same order on both sides: a
    receive is never moved across another transfer with the same rank. So messages need no tags.
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
    """Return the position at which a receive from ``peer``, which follows ``steps``, starts."""
    at = len(steps)
    while at and not (steps[at - 1].name in ("pipe.send", POST) and _peer(steps[at - 1]) == peer):
        at -= 1
        if steps[at].name == "pipe.action":
            return at
    return len(steps)


def _peer(step: Step) -> int:
    """Return the other rank of a transfer."""
    return ir.IntegerAttr(step.op.attributes["to" if step.name == "pipe.send" else "source"]).value
