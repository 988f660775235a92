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
    """The numbers of messages, the same for sender and receiver. ``rank``: whose program is written; ``axes``: the
    constant that names the pipeline's axis; ``slices``: into how many a sequence is cut; ``stages``: symbol of a
    ``pipe.stage`` -> the function that it became."""

    axes: str
    stages: dict[str, str] = field(default_factory=dict)
    rank: int = 0
    slices: int = 1
    _numbers: dict[tuple[int, int, str], int] = field(default_factory=dict)
    _count: int = 0

    def number(self, source: int, to: int, tag: str, tensors: int) -> int:
        """The number of a message's first tensor; the others follow."""
        key = source, to, tag
        if key not in self._numbers:
            self._numbers[key] = self._count
            self._count += tensors
        return self._numbers[key]


def post_receives(steps: Sequence[Step]) -> list[Step]:
    """The steps with a start for each receive, ahead of the action before it:
    the message travels while that computes.
    """
    starts: dict[int, list[Step]] = {}
    action = None
    for number, step in enumerate(steps):
        if step.name == "pipe.action":
            action = number
        elif step.name == "pipe.receive":
            starts.setdefault(number if action is None else action, []).append(Step(step.op, POST, None, [], []))
    return [found for number, step in enumerate(steps) for found in (*starts.get(number, ()), step)]


def _action(body: Body, step: Step) -> None:
    messages = _messages(body)
    action = Action.parse(step.op.attributes["action"].value)
    function = messages.stages[step.op.attributes["stage"].value]
    arguments = ", ".join(["rank", str(action.micro_batch // messages.slices), *map(body.name, step.operands)])
    for value in (*step.operands, *step.results):
        body.aliases.join(step.operands[0] if step.operands else value, value)
    body.line(f"{_assigned(body, step)}{function}({arguments})")


def _send(body: Body, step: Step) -> None:
    messages, to = _messages(body), step.op.attributes["to"].value
    number = messages.number(messages.rank, to, step.op.attributes["tag"].value, len(step.operands))
    values = ", ".join(map(body.name, step.operands))
    body.line(f"rank.send(({values},), to={to}, axes={messages.axes}, tag={number})")


def _post(body: Body, step: Step) -> None:
    messages, source = _messages(body), step.op.attributes["source"].value
    types = [read_type(t) for t in element_types(step.op.results[0].type) or []]
    number = messages.number(source, messages.rank, step.op.attributes["tag"].value, len(types))
    kinds = ", ".join(f"({type_.shape}, {type_.dtype})" for type_ in types if type_ is not None)
    body.line(
        f"{_handle(body, step.op)} = rank.receive(({kinds},), source={source}, axes={messages.axes}, tag={number})"
    )


def _receive(body: Body, step: Step) -> None:
    body.line(f"{_assigned(body, step)}{_handle(body, step.op)}.wait()")


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
