"""``dist.loop`` as a Python ``for`` over a time axis."""

from __future__ import annotations

from collections.abc import Callable

from torch_mlir import ir

from shardc.backends.torch.block import Block
from shardc.backends.torch.memory.aliases import Aliases
from shardc.backends.torch.memory.schedule import Schedule, schedule_block
from shardc.dialects.dist.regions.loop_values import LoopValues

WriteBlock = Callable[[Schedule, Aliases], Block]
"""Function that writes all steps of an inner block."""


def write_loop(
    outer: Block, op: ir.Operation, loop: LoopValues, position: int, write_block: WriteBlock
) -> None:
    """Write a loop. Carried values keep one name; stacked ones are collected in lists and concatenated."""
    program, block = outer.program, op.regions[0].blocks[0]
    carried = _name_values(outer, loop, block)
    parts = [program.names.numbered("parts") for _ in loop.rows]
    if carried:
        outer.line(f"{', '.join(carried)} = {', '.join(map(outer.name, loop.inits))}")
    _free_inits(outer, position, loop)
    for name in parts:
        outer.line(f"{name} = []")
    (axis,) = program.codec.read_axes(ir.ArrayAttr.get([op.attributes["axis"]], op.context))
    variable = program.dist.axes.enter_loop(axis)
    share = program.dist.axes.share(axis)
    outer.line(f"for {variable} in {share or f'range({axis.size})'}:")
    _write_body(outer, loop, block, carried, parts, write_block)
    for name, dim in zip(parts, op.attributes["stack_dims"], strict=True):
        whole = f"rank.stacked({name}, {dim.value}, {share}, {axis.size})"
        outer.line(f"{name} = {whole if share else f'torch.cat({name}, {dim.value})'}")
    program.values.update(zip(loop.stacked, parts, strict=False))


def _name_values(outer: Block, loop: LoopValues, block: ir.Block) -> list[str]:
    """Name the carried results and the body's arguments: carried ones like results, others like captures."""
    values, names = outer.program.values, outer.program.names
    carried = [names.numbered("carried") for _ in loop.inits]
    arguments = list(block.arguments)
    values.update(zip(loop.carried, carried, strict=False))
    values.update(zip(arguments[: len(carried)], carried, strict=True))
    for argument, capture in zip(arguments[len(carried) :], loop.captures, strict=True):
        values[argument] = values[capture]
    return carried


def _free_inits(outer: Block, position: int, loop: LoopValues) -> None:
    """Free the initial values before the loop. Otherwise their names would keep them alive during it."""
    dying = outer.dying.get(position, [])
    early = [v for v in dying if v in loop.inits and v not in loop.captures]
    outer.free(early)
    outer.dying[position] = [v for v in dying if v not in early]


def _write_body(
    outer: Block, loop: LoopValues, block: ir.Block, carried: list[str], parts: list[str], write: WriteBlock
) -> None:
    yielded = [*loop.following, *loop.rows]
    schedule = schedule_block(block, outer.program.reader, yielded)
    arguments = list(block.arguments)
    schedule.need_at_end(yielded)
    for name, argument, value in zip(carried, arguments, loop.following, strict=False):
        if yielded.count(value) == 1 and _takes_place(schedule, argument, value):
            outer.program.values[value] = name
    body = write(schedule, Aliases(arguments))
    for name, value in zip(parts, loop.rows, strict=True):
        body.line(f"{name}.append({body.name(value)})")
    _hand_on(body, carried, loop.following)
    for value, result in zip(loop.following, loop.carried, strict=False):
        if body.aliases.group(value).foreign:
            outer.aliases.group(result).foreign = True


def _takes_place(schedule: Schedule, argument: ir.Value, value: ir.Value) -> bool:
    """Return True if ``value``, the next of a carried ``argument``, may take its name when it is computed."""
    made = schedule.made.get(value)
    if made is None:
        return False
    step = schedule.steps[made]
    return step.name != "dist.loop" and not step.starts and schedule.last.get(argument, -1) <= made


def _hand_on(body: Block, carried: list[str], following: list[ir.Value]) -> None:
    moves = [(name, body.name(value)) for name, value in zip(carried, following, strict=True)]
    moves = [(to, source) for to, source in moves if to != source]
    if moves:
        body.line(f"{', '.join(to for to, _ in moves)} = {', '.join(source for _, source in moves)}")
        made = [v for v in following if v in body.schedule.made and body.name(v) not in carried]
        body.free(list(dict.fromkeys(made)))
