"""Calls around a linear layer: who makes and who reads a value, what is a view, what a product multiplies."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import target_name
from shardc.dialects.aten.types import TensorType, read_type
from shardc.passes.fuse.captures import captured, inside
from shardc.passes.fuse.read import VIEWS

PRODUCT, PRODUCT_WITH_BIAS = "aten.mm", "aten.addmm"
LINKS = frozenset(("aten.view", "aten._unsafe_view", "aten.reshape", "aten._to_copy", "aten.clone"))
TURNS = frozenset(("aten.t", "aten.transpose.int", "aten.permute"))


def target_of(op: ir.Operation) -> str:
    """What ``op`` calls; its own name if that is no call."""
    return target_name(op) if op.name.startswith("torch.") else op.name


def maker(value: ir.Value) -> ir.Operation | None:
    """The ATen call that makes a value."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    return (
        op
        if op.name.startswith("torch.") and not op.name.startswith(("torch.prim", "torch.constant"))
        else None
    )


def readers(value: ir.Value) -> list[ir.Operation]:
    """The ops that read a value, each once."""
    return list(dict.fromkeys(use.owner.operation for use in value.uses))


def type_of(value: ir.Value) -> TensorType:
    type_ = read_type(value.type)
    assert type_ is not None
    return type_


def is_view(op: ir.Operation) -> bool:
    return target_name(op) in VIEWS


def product_behind(value: ir.Value) -> ir.Operation | None:
    """The product whose logits ``value`` is, behind views and conversions; None if there is none."""
    while (op := maker(value)) is not None and target_name(op) in LINKS:
        value = op.operands[0]
    return op if op is not None and target_name(op) in (PRODUCT, PRODUCT_WITH_BIAS) else None


def has_bias(product: ir.Operation) -> bool:
    return target_name(product) == PRODUCT_WITH_BIAS


def factors(product: ir.Operation) -> tuple[ir.Value, ir.Value]:
    first = int(has_bias(product))
    return product.operands[first], product.operands[first + 1]


def weight_of(product: ir.Operation) -> ir.Value | None:
    """The weight [classes, size] of a product with its transpose, as the product's block knows it."""
    turn = maker(captured(factors(product)[1]))
    if turn is None or target_name(turn) not in TURNS:
        return None
    return turn.operands[0] if turn.block == product.block else inside(turn.operands[0], product.block)


def made_behind(value: ir.Value, first: ir.Operation) -> list[ir.Operation]:
    """``first`` and the ops behind it in its block, in order, that ``value`` is made by."""
    places = {other.operation: number for number, other in enumerate(first.block.operations)}
    found: dict[ir.Operation, None] = {}
    waiting = [value]
    while waiting:
        owner = waiting.pop().owner
        op = None if isinstance(owner, ir.Block) else owner.operation
        if op is not None and op not in found and op.block == first.block and places[op] >= places[first]:
            found[op] = None
            waiting += op.operands
    return sorted(found, key=places.__getitem__)


def first_of(ops: list[ir.Operation]) -> ir.Operation:
    """Which of the ops of one block stands first."""
    wanted = set(ops)
    return next(o.operation for o in ops[0].block.operations if o.operation in wanted)
