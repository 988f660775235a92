"""Captured values of loops' bodies: the value behind an argument, and arguments without readers."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.dist.build import segments
from shardc.dialects.dist.regions.loop import LoopOp
from shardc.dialects.dist.tuples import pack
from shardc.passes.fuse.reading.values import is_read


def captured(value: ir.Value) -> ir.Value:
    """Return the outside value behind a captured argument of a loop's body; else ``value`` itself."""
    block = value.owner
    if not isinstance(block, ir.Block) or block.owner.name != LoopOp.OPERATION_NAME:
        return value
    carried, captures = _groups(block.owner)
    number = ir.BlockArgument(value).arg_number - len(carried)
    return captured(captures[number]) if number >= 0 else value


def inside(value: ir.Value, block: ir.Block) -> ir.Value | None:
    """Return the value of ``block`` that stands for an outside value, or None."""
    return next((argument for argument in block.arguments if captured(argument) == value), None)


def drop_captures(block: ir.Block) -> None:
    """Drop captures that the body of the loop around ``block`` does not read. Replaces the loop's op."""
    loop = block.owner.operation
    carried, captures = _groups(loop)
    unread = [a.arg_number for a in list(block.arguments)[len(carried) :] if not is_read(a)]
    if not unread:
        return
    left = [value for number, value in enumerate(captures, len(carried)) if number not in unread]
    for number in reversed(unread):
        block.erase_argument(number)
    loc, ip = loop.location, ir.InsertionPoint(loop)
    inits = list(loop.operands)[: 1 if carried else 0]
    tuples, old = pack(left, loc=loc, ip=ip), list(loop.operands)[-1].owner
    attributes = {name: loop.attributes[name] for name in loop.attributes}
    attributes["operandSegmentSizes"] = segments(loop.context, inits, tuples)
    types, operands = [result.type for result in loop.results], [*inits, *tuples]
    new = ir.Operation.create(loop.name, types, operands, attributes, regions=1, loc=loc, ip=ip)
    block.append_to(new.regions[0])
    for before, after in zip(loop.results, new.results, strict=True):
        before.replace_all_uses_with(after)
    loop.erase()
    if not is_read(old.results[0]):
        old.erase()


def _groups(loop: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    """Return the carried values and the captured values."""
    sizes = list(ir.DenseI32ArrayAttr(loop.attributes["operandSegmentSizes"]))
    tuples = iter(loop.operands)
    carried, captures = (list(next(tuples).owner.operands) if size else [] for size in sizes)
    return carried, captures
