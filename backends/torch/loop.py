"""``dist.loop`` as a Python ``for`` over a time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_mlir import ir

from shardc.backends.torch.aliases import Aliases
from shardc.backends.torch.schedule import Schedule, Step, schedule_block

if TYPE_CHECKING:
    from shardc.backends.torch.body import Body


def write_loop(outer: Body, step: Step, position: int) -> None:
    """Carried values keep one name through all iterations; stacked ones are collected in lists and concatenated."""
    program, op = outer.program, step.op
    block = op.regions[0].blocks[0]
    count = op.attributes["operandSegmentSizes"][0]
    inits, captures = step.operands[:count], step.operands[count:]
    carried = _name_arguments(outer, step, block, count)
    parts = [program.names.numbered("parts") for _ in step.results[count:]]
    if carried:
        outer.line(f"{', '.join(carried)} = {', '.join(map(outer.name, inits))}")
    _free_inits(outer, position, inits, captures)
    for name in parts:
        outer.line(f"{name} = []")
    (axis,) = program.codec.read_axes(ir.ArrayAttr.get([op.attributes["axis"]], op.context))
    variable = program.dist.axes.enter_loop(axis)
    outer.line(f"for {variable} in range({axis.size}):")
    _write_body(outer, step, block, carried, parts)
    for name, value, dim in zip(parts, step.results[count:], op.attributes["stack_dims"], strict=True):
        program.values[value] = name
        outer.line(f"{name} = torch.cat({name}, {dim.value})")


def _name_arguments(outer: Body, step: Step, block: ir.Block, count: int) -> list[str]:
    """Name results, then the body's arguments: a carried one as its result, a capture as what it captures."""
    values, names = outer.program.values, outer.program.names
    carried = [names.numbered("carried") for _ in range(count)]
    values.update(zip(step.results[:count], carried, strict=True))
    arguments = list(block.arguments)
    values.update(zip(arguments[:count], carried, strict=True))
    for argument, capture in zip(arguments[count:], step.operands[count:], strict=True):
        values[argument] = values[capture]
    return carried


def _free_inits(outer: Body, position: int, inits: list[ir.Value], captures: list[ir.Value]) -> None:
    """Drop the first values' own names before the loop, or they would live as long as it runs."""
    dying = outer.dying.get(position, [])
    outer.free([v for v in dying if v in inits and v not in captures])
    outer.dying[position] = [v for v in dying if v not in inits or v in captures]


def _write_body(outer: Body, step: Step, block: ir.Block, carried: list[str], parts: list[str]) -> None:
    from shardc.backends.torch.body import Body

    yielded = list(list(block.operations)[-1].operation.operands)
    schedule = schedule_block(block, outer.program.reader, yielded)
    arguments = list(block.arguments)
    for value in yielded:
        schedule.need(value, schedule.end)
    following = yielded[: len(carried)]
    for name, argument, value in zip(carried, arguments, following, strict=False):
        if yielded.count(value) == 1 and _takes_place(schedule, argument, value):
            outer.program.values[value] = name
    body = Body(outer.program, schedule, Aliases(arguments), outer.indent + "    ")
    body.write()
    for name, value in zip(parts, yielded[len(carried) :], strict=True):
        body.line(f"{name}.append({body.name(value)})")
    _hand_on(body, carried, following)
    if not schedule.steps and not carried and not parts:
        body.line("pass")
    for value, result in zip(following, step.results, strict=False):
        if body.aliases.is_foreign(value):
            outer.aliases.disown(result)


def _takes_place(schedule: Schedule, argument: ir.Value, value: ir.Value) -> bool:
    """Whether ``value``, the next of a carried ``argument``, may have its name as soon as it is made."""
    made = schedule.made.get(value)
    if made is None:
        return False
    step = schedule.steps[made]
    return step.name != "dist.loop" and not step.starts and schedule.last.get(argument, -1) <= made


def _hand_on(body: Body, carried: list[str], following: list[ir.Value]) -> None:
    moves = [(name, body.name(value)) for name, value in zip(carried, following, strict=True)]
    moves = [(to, source) for to, source in moves if to != source]
    if moves:
        body.line(f"{', '.join(to for to, _ in moves)} = {', '.join(source for _, source in moves)}")
        made = [v for v in following if v in body.schedule.made and body.name(v) not in carried]
        body.free(list(dict.fromkeys(made)))
