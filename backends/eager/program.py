"""Instructions of a block, prepared for execution: constants are folded, and last uses are known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.oracle import ExecutionFailed
from shardc.dialects.aten.call import Call, CallReader, is_constant, target_name
from shardc.dialects.location import source_line
from shardc.runtime.errors import ExpertOverflow, NoSuchExpert

STEP = "step"


@dataclass(slots=True)
class Instruction:
    """Op to run. ``call``: set for an ATen call. ``dying``: values that nothing reads after this op."""

    op: ir.Operation
    name: str
    call: Call | None
    operands: list[ir.Value]
    dying: list[ir.Value] = field(default_factory=list)


@contextmanager
def blamed_on(op: ir.Operation) -> Iterator[None]:
    """Context that turns exceptions into ExecutionFailed with the op's name and line.

    Errors about the batch, which real steps raise, too, keep their class and get the line.
    """
    try:
        yield
    except ShardcError:
        raise
    except (ExpertOverflow, NoSuchExpert) as error:
        raise type(error)(error.what, source_line(op.location), error.hint) from error
    except Exception as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"{type(error).__name__} {reason}"
        raise ExecutionFailed(op=target_name(op), reason=reason, where=source_line(op.location)) from error


def find_step(module: ir.Module) -> ir.Operation | None:
    """Return the function ``@step`` of a module; None if there is none with a body."""
    functions = (view.operation for view in module.body.operations if view.operation.name == "func.func")
    step = next((f for f in functions if f.attributes["sym_name"].value == STEP), None)
    return step if step is not None and len(step.regions[0].blocks) else None


def read_block(block: ir.Block, reader: CallReader) -> list[Instruction]:
    """Return the instructions of a block in order. Constants are folded into their users."""
    ops = (view.operation for view in block.operations)
    instructions = [_read(op, reader) for op in ops if not (op.name.startswith("torch.") and is_constant(op))]
    seen: set[ir.Value] = set()
    for instruction in reversed(instructions):
        values = dict.fromkeys([*instruction.operands, *instruction.op.results])
        instruction.dying = [v for v in values if v not in seen]
        seen.update(values)
    return instructions


def _read(op: ir.Operation, reader: CallReader) -> Instruction:
    name = op.name
    is_call = name.startswith("torch.") and not name.startswith("torch.prim.Tuple")
    if is_call and str(op.results[0].type) != "!torch.int":  # which is arithmetic on runtime integers
        with blamed_on(op):
            call = reader.read(op)
        return Instruction(op, name, call, call.operands)
    return Instruction(op, name, None, list(op.operands))
