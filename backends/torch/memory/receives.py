"""Early start of a pipeline's receives: before the action that precedes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch_mlir import ir

from shardc.backends.torch.step import Step

PIPE = frozenset(("pipe.action", "pipe.send", "pipe.receive"))
POST = "pipe.post"
"""Name of the step that starts a receive. The ``pipe.receive`` then only waits."""
DELIVERED = "pipe.delivered"
"""Name of the step that waits until evicted activations are sent, and frees them."""
_EVICTED = re.compile(r"\d+(EVICT|LOAD)\d+")


def post_receives(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with each receive started before the preceding action, to overlap with it.

    The wait is right before the first use. Between two ranks, transfers keep the same order on both sides: a
    receive is never moved across another transfer with the same rank. So messages need no tags.

    The schedule says when evicted activations are transferred: their receives start where they are. What was
    sent is freed after the next action.
    """
    readers: dict[ir.Value, int] = {}
    waits: dict[int, list[Step]] = {}
    for number, step in reversed(list(enumerate(steps))):
        if step.name == "pipe.receive":
            first = min((readers[v] for v in step.results if v in readers), default=len(steps))
            waits.setdefault(first, []).append(step)
        readers.update(dict.fromkeys(step.operands, number))
    found: list[Step] = []
    sent: list[Step] = []
    for number, step in enumerate(steps):
        found += reversed(waits.get(number, []))
        if step.name == "pipe.receive":
            at = len(found) if is_evicted(step.op) else _start(found, _peer(step))
            found.insert(at, Step(step.op, POST, None, [], []))
        else:
            found.append(step)
        if step.name == "pipe.send" and is_evicted(step.op):
            sent.append(Step(step.op, DELIVERED, None, [], []))
        elif step.name == "pipe.action":
            found += sent
            sent.clear()
    return found + sent + waits.get(len(steps), [])[::-1]


def is_evicted(op: ir.Operation) -> bool:
    """Return whether a send or receive transfers evicted activations."""
    return _EVICTED.fullmatch(ir.StringAttr(op.attributes["tag"]).value) is not None


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
