"""A block of ops made ready to run: constants read once, and for each op the values that die with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.backends.eager.proof.blame import blamed_on
from shardc.dialects.aten.call import Call, CallReader, is_constant

STEP = "step"


@dataclass(slots=True)
class Instruction:
    """One op to run: ``call`` if it is an ATen call. ``dying`` are the values that nothing reads after it."""

    op: ir.Operation
    name: str
    call: Call | None
    operands: list[ir.Value]
    dying: list[ir.Value] = field(default_factory=list)


def find_step(module: ir.Module, function: str = STEP) -> ir.Operation | None:
    """The function ``@step`` of a module, None if it has none with a body."""
    for op in module.body.operations:
        op = op.operation
        if op.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == function:
            return op if len(op.regions[0].blocks) else None
    return None


def read_block(block: ir.Block, reader: CallReader) -> list[Instruction]:
    """The instructions of a block in order; ops that only make constants are folded into their users."""
    instructions = [_read(op.operation, reader) for op in block.operations if not _is_constant(op.operation)]
    seen: set[ir.Value] = set()
    for instruction in reversed(instructions):
        values = dict.fromkeys([*instruction.operands, *instruction.op.results])
        instruction.dying = [v for v in values if v not in seen]
        seen.update(values)
    return instructions


def _is_constant(op: ir.Operation) -> bool:
    return op.name.startswith("torch.") and is_constant(op)


def _read(op: ir.Operation, reader: CallReader) -> Instruction:
    name = op.name
    if name.startswith("torch.") and not name.startswith("torch.prim.Tuple") and not _makes_integer(op):
        with blamed_on(op):
            call = reader.read(op)
        return Instruction(op, name, call, call.operands)
    return Instruction(op, name, None, list(op.operands))


def _makes_integer(op: ir.Operation) -> bool:
    """Whether the op is arithmetic on runtime integers (``torch.aten.add.int``) and not an ATen call."""
    return str(op.results[0].type) == "!torch.int"
