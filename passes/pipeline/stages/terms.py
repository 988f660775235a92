"""Terms of the sums over micro-batches that stages add to, each its own part."""

from __future__ import annotations

from torch_mlir import ir

from shardc.passes.pipeline.stages.places import Assignment

REDUCTIONS = ("dist.all_reduce", "dist.reduce_scatter")


def terms(term: ir.Value, reader: ir.Operation, found: Assignment) -> list[ir.Value]:
    """Split the term that ``reader`` adds to a sum over micro-batches into several stages' values.

    So a tied weight's gradients are summed once, after all micro-batches, and not sent for each. If the term
    is computed from a sum by :func:`linear_ops`, each part is computed by them.
    """
    ops = linear_ops(term) if _is_sum(reader) else []
    whole = ops[-1].operands[0] if ops else term
    if not all(_is_alone(op.results[0], after) for after, op in zip([reader, *ops], ops, strict=False)):
        return [term]
    parts = _parts(whole, ops[-1] if ops else reader, found)
    return parts if len(parts) > 1 else [term]


def linear_ops(term: ir.Value) -> list[ir.Operation]:
    """Return the casts, and sums over devices, that compute a value from another one, last first."""
    found: list[ir.Operation] = []
    while is_linear(term):
        found.append(term.owner.operation)
        term = term.owner.operands[0]
    return found


def is_linear(value: ir.Value) -> bool:
    """Return whether a value is another one in another type of numbers, or summed over devices."""
    if not isinstance(value, ir.OpResult):
        return False
    op = value.owner.operation
    is_reduction = op.name in REDUCTIONS and op.attributes["reduction"].value == "sum"
    return is_reduction or op.name == "torch.aten._to_copy"


def _parts(term: ir.Value, reader: ir.Operation, found: Assignment) -> list[ir.Value]:
    """Split a term that is a sum of several stages' values, with no other reader, into these values."""
    summands = _summands(term, reader)
    parts = [part for value in summands for part in _parts(value, term.owner.operation, found)]
    stages = {place[0] for part in parts if (place := found.place_of(part)) is not None}
    return parts if len(stages) > 1 else [term]


def _summands(term: ir.Value, reader: ir.Operation) -> list[ir.Value]:
    """Return the operands of a plain sum whose only reader is ``reader``, a sum or linear; else nothing."""
    takes = _is_sum(reader) or any(map(is_linear, reader.results))
    if not isinstance(term, ir.OpResult) or not (takes and _is_sum(term.owner.operation)):
        return []
    values = list(term.owner.operands)[:2]
    return values if _is_alone(term, reader) and all(v.type == term.type for v in values) else []


def _is_alone(term: ir.Value, reader: ir.Operation) -> bool:
    return all(use.owner.operation == reader for use in term.uses)


def _is_sum(op: ir.Operation) -> bool:
    if op.name != "torch.aten.add.Tensor":
        return False
    factor = op.operands[2].owner.attributes
    return "value" in factor and factor["value"].value == 1
