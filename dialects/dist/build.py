"""What the builders of ``dist`` ops share."""

from torch_mlir import ir


def i64(value: int, context: ir.Context) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)


def string(text: str, context: ir.Context) -> ir.StringAttr:
    return ir.StringAttr.get(text, context)


def segments(*groups: list[ir.Value] | list[ir.Type]) -> ir.DenseI32ArrayAttr:
    """How many operands or results each group has."""
    return ir.DenseI32ArrayAttr.get([len(group) for group in groups])


def only_operand() -> property:
    """An accessor for an op's one optional operand.

    The bindings' own accessor needs ``operandSegmentSizes``, which an op with a single group does not carry
    here.
    """
    return property(lambda op: op.operands[0] if len(op.operands) else None)


def only_result() -> property:
    return property(lambda op: op.results[0] if len(op.results) else None)
