"""What goes on between the ranks of a pipeline, as lines of their programs: actions, sends and receives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_mlir import ir

from shardc.backends.torch.step import Step
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.pipe.action import Action

if TYPE_CHECKING:
    from shardc.backends.torch.body import Body

PIPE = frozenset(("pipe.action", "pipe.send", "pipe.receive"))
POST = "pipe.post"
"""The start of a receive, for which the ``pipe.receive`` then waits."""


@dataclass
class Messages:
    """What the text of messages needs to know. ``axes``: the constant that names the pipeline's axis;
    ``slices``: into how many a sequence is cut; ``stages``: symbol of a ``pipe.stage`` -> the function that
    it became.
    """

    axes: str
    stages: dict[str, str] = field(default_factory=dict)
    slices: int = 1


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
    return step.op.attributes["to" if step.name == "pipe.send" else "source"].value


def _action(body: Body, step: Step) -> None:
    messages = _messages(body)
    action = Action.parse(step.op.attributes["action"].value)
    function = messages.stages[step.op.attributes["stage"].value]
    arguments = ", ".join(
        ["rank", str(action.micro_batch // messages.slices), *map(body.name, step.operands)]
    )
    for value in (*step.operands, *step.results):
        body.aliases.join(step.operands[0] if step.operands else value, value)
    body.line(f"{_assigned(body, step)}{function}({arguments})")


def _send(body: Body, step: Step) -> None:
    to, values = step.op.attributes["to"].value, ", ".join(map(body.name, step.operands))
    body.line(f"rank.send(({values},), to={to}, axes={_messages(body).axes})  # {_tag(step)}")


def _post(body: Body, step: Step) -> None:
    source, axes = step.op.attributes["source"].value, _messages(body).axes
    types = [read_type(t) for t in element_types(step.op.results[0].type) or []]
    kinds = ", ".join(f"({type_.shape}, {type_.dtype})" for type_ in types if type_ is not None)
    body.line(
        f"{_handle(body, step.op)} = rank.receive(({kinds},), source={source}, axes={axes})  # {_tag(step)}"
    )


def _receive(body: Body, step: Step) -> None:
    body.line(f"{_assigned(body, step)}{_handle(body, step.op)}.wait()")


def _tag(step: Step) -> str:
    return step.op.attributes["tag"].value


def _assigned(body: Body, step: Step) -> str:
    """The left side of a call that gives a tuple."""
    names = body.name_results(step)
    return f"{', '.join(names)}{',' if len(names) == 1 else ''} = " if names else ""


def _handle(body: Body, op: ir.Operation) -> str:
    tuple_ = op.results[0]
    if tuple_ not in body.program.values:
        body.program.values[tuple_] = body.program.names.numbered("message")
    return body.program.values[tuple_]


def _messages(body: Body) -> Messages:
    assert body.program.messages is not None, "only a pipeline has messages"
    return body.program.messages


WRITERS: dict[str, Callable[[Body, Step], None]] = {
    "pipe.action": _action,
    "pipe.send": _send,
    POST: _post,
    "pipe.receive": _receive,
}
