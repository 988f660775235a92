"""Actions, sends and receives of a pipeline's ranks as lines of their programs."""

from __future__ import annotations

from collections.abc import Callable

from torch_mlir import ir

from shardc.backends.torch.block import Block, Messages
from shardc.backends.torch.handed import split, stage_of
from shardc.backends.torch.memory.receives import DELIVERED, POST, is_evicted
from shardc.backends.torch.step import Step
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.pipe.action import Action


def _action(body: Block, step: Step) -> None:
    messages = _messages(body)
    action = Action.parse(step.op.attributes["action"].value)
    stage = stage_of(step.op)
    number = str(action.micro_batch // messages.slices)
    passed, given = split(step.operands, messages.handed[stage])
    arguments = ["rank", number, *map(body.name, passed)]
    if given:
        arguments.append(body.program.names.numbered("handed"))
        body.line(f"{arguments[-1]} = [{', '.join(map(body.name, given))}]")
        body.free_early(given)
    for value in (*step.operands, *step.results):
        body.aliases.join(step.operands[0] if step.operands else value, value)
    body.line(f"{_assigned(body, step)}{messages.stages[stage]}({', '.join(arguments)})")


def _send(body: Block, step: Step) -> None:
    sent = f"rank.send(({', '.join(map(body.name, step.operands))},), "
    if is_evicted(step.op):
        handle = body.program.names.numbered("message")
        _messages(body).sent[_tag(step.op)] = handle
        body.line(f"{handle} = {sent}kept=True, {_way(body, step, 'to')}")
    else:
        body.line(f"{sent}{_way(body, step, 'to')}")


def _delivered(body: Block, step: Step) -> None:
    body.line(f"{_messages(body).sent[_tag(step.op)]}.wait()")


def _post(body: Block, step: Step) -> None:
    types = [read_type(t) for t in element_types(step.op.results[0].type) or []]
    kinds = ", ".join(f"({type_.shape}, {type_.dtype})" for type_ in types if type_ is not None)
    body.line(f"{_handle(body, step.op)} = rank.receive(({kinds},), {_way(body, step, 'source')}")


def _way(body: Block, step: Step, end: str) -> str:
    """Return the last arguments of a transfer, with its tag in a comment."""
    attributes = step.op.attributes
    return f"{end}={attributes[end].value}, axes={_messages(body).axes})  # {_tag(step.op)}"


def _tag(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["tag"]).value


def _receive(body: Block, step: Step) -> None:
    body.line(f"{_assigned(body, step)}{_handle(body, step.op)}.wait()")
    messages = _messages(body)
    if count := messages.arrived.get(step.op.results[0]):
        source = step.op.attributes["source"].value
        body.line(f"rank.finish_sends({count}, to={source}, axes={messages.axes})")


def _assigned(body: Block, step: Step) -> str:
    """Return the left side of a call that returns a tuple."""
    names = body.name_results(step)
    return f"{', '.join(names)}{',' if len(names) == 1 else ''} = " if names else ""


def _handle(body: Block, op: ir.Operation) -> str:
    tuple_ = op.results[0]
    if tuple_ not in body.program.values:
        body.program.values[tuple_] = body.program.names.numbered("message")
    return body.program.values[tuple_]


def _messages(body: Block) -> Messages:
    assert body.program.messages is not None, "only a pipeline has messages"
    return body.program.messages


WRITERS: dict[str, Callable[[Block, Step], None]] = {
    "pipe.action": _action,
    "pipe.send": _send,
    POST: _post,
    DELIVERED: _delivered,
    "pipe.receive": _receive,
}
