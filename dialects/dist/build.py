"""What the builders of ``dist`` ops share."""

from torch_mlir import ir


def i64(value: int, context: ir.Context) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)


def string(text: str, context: ir.Context) -> ir.StringAttr:
    return ir.StringAttr.get(text, context)


def unsegmented(index: int | slice, *, results: bool = False) -> property:
    """An accessor for an op's only group of operands (or results).

    The bindings' own accessor needs ``operandSegmentSizes``, which ops with one group do not carry here.
    """

    def read(op: ir.OpView) -> object:
        values = list(op.results if results else op.operands)
        return values[index] if isinstance(index, slice) or index < len(values) else None

    return property(read)
