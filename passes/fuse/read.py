"""A block of a program as fusion sees it: units in order, each an opaque op, a view, or the nodes of a call that lowers."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader, IntValue, is_constant, leaves
from shardc.dialects.aten.schema import UnknownOperator
from shardc.dialects.aten.types import TensorType, read_type
from shardc.passes.fuse.graph import Builder, Node, NotLowered, Value
from shardc.passes.fuse.legal import Refused, check_parts
from shardc.passes.fuse.table import is_worth_alone, lower
from shardc.passes.fuse.view import WHOLE, View, view_of

_NO_TENSOR = TensorType((), torch.uint8)
"""Stands for the type of an integer or a tuple; kernels read neither."""

CUTS = frozenset(("aten.slice.Tensor", "aten.select.int"))
VIEWS = WHOLE | CUTS
_CUTS = frozenset(f"torch.{target}" for target in CUTS)


@dataclass(eq=False, slots=True)
class Step:
    """One op of the block. ``operands`` are the tensors that it reads, ``nodes`` what it lowers to (none: it stays).

    ``is_view``: its result is another tensor's memory seen otherwise, so that it need not stand anywhere in particular.
    ``always``: it becomes a kernel even if it shares none with another. ``why`` says why it does not lower.
    """

    number: int
    op: ir.Operation
    target: str
    operands: list[Value]
    results: list[Value | None]
    nodes: list[Node] = field(default_factory=list)
    is_view: bool = False
    always: bool = False
    why: str = ""


@dataclass
class Block:
    """The steps of a block, its values by SSA value, and those that leave it."""

    block: ir.Block
    steps: list[Step]
    values: dict[ir.Value, Value]
    returned: list[Value]


def read_block(
    block: ir.Block,
    reader: CallReader,
    exclude: frozenset[ir.Value] = frozenset(),
    without: frozenset[int] = frozenset(),
    calls: frozenset[str] = frozenset(),
) -> Block:
    """The steps of ``block``. Calls that make one of ``exclude``, those numbered ``without``, and those of the targets
    ``calls`` are left as they are."""
    values: dict[ir.Value, Value] = {}
    for argument in block.arguments:
        _value(values, argument)
    steps: list[Step] = []
    ops = [o.operation for o in block.operations]
    for op in ops[:-1]:
        if not (op.name.startswith("torch.") and is_constant(op)):
            steps.append(_step(len(steps), op, values, reader, exclude, without, calls))
    return Block(block, steps, values, [_value(values, v) for v in ops[-1].operands])


def _step(
    number: int,
    op: ir.Operation,
    values: dict[ir.Value, Value],
    reader: CallReader,
    exclude: frozenset[ir.Value],
    without: frozenset[int],
    calls: frozenset[str],
) -> Step:
    call = _call(op, reader)
    if call is None:
        operands = [_value(values, v) for v in op.operands]
        return Step(number, op, op.name, operands, [_value(values, r) for r in op.results], why="is no ATen call")
    operands = [_value(values, v) for v in call.operands]
    step = Step(number, op, call.spec.target, operands, [])
    static = all(isinstance(leaf, TensorType) for leaf in leaves(call.spec.args) if isinstance(leaf, TensorType | IntValue))
    if static and call.spec.target in VIEWS:
        step.is_view = True
        view = view_of(call.spec, operands[0])
        part = None if view is None or number in without or not exclude.isdisjoint(op.results) else _part(step, call, view)
        if part is not None:
            step.is_view = False
            step.results = [_named(values, op.results[0], part)]
            return step
        result = _value(values, op.results[0])
        result.view = view
        step.results = [result]
        return step
    if call.spec.target in calls:
        step.why = "is left to ATen or a library"
    stays = not static or number in without or call.spec.target in calls
    made = None if stays else _lowered(step, call, operands, exclude)
    step.results = [
        None if type_ is None else _named(values, result, made[i] if made else None)
        for i, (result, type_) in enumerate(zip(op.results, call.spec.results, strict=True))
    ]
    return step


def _part(step: Step, call: Call, view: View) -> Value | None:
    """The part of a pointwise op's result that ``view`` cuts out, computed alone, where parts are all that is read of it."""
    (operand,) = call.operands
    if view.cut is None or view.source.node is None or any(use.owner.name not in _CUTS for use in operand.uses):
        return None
    builder = Builder(step.number)
    part = builder.sliced(view.source, view.cut, call.spec.results[0])
    step.nodes, step.always = builder.nodes, part is not None
    return part


def _lowered(step: Step, call: Call, operands: list[Value], exclude: frozenset[ir.Value]) -> list[Value | None] | None:
    if not exclude.isdisjoint(call.results):
        step.why = "makes a result of the graph whose strides callers rely on"
        return None
    builder = Builder(step.number)
    try:
        made = lower(builder, call.spec, operands)
    except NotLowered as why:
        step.why = str(why)
        return None
    if any(m is None and any(True for _ in r.uses) for r, m in zip(call.results, made, strict=True)):
        step.why = "makes an empty tensor that is read"
        return None
    try:
        check_parts(builder.nodes)
    except Refused as why:
        step.why = f"is no one kernel: {why}"
        return None
    step.nodes, step.always = builder.nodes, is_worth_alone(call.spec)
    return made


def _named(values: dict[ir.Value, Value], result: ir.Value, made: Value | None) -> Value:
    """The value of a result: what a lowering made, or a new one."""
    if made is None:
        return _value(values, result)
    values[result] = made
    made.ir = result
    return made


def _value(values: dict[ir.Value, Value], value: ir.Value) -> Value:
    found = values.get(value)
    if found is None:
        type_ = read_type(value.type)
        found = values[value] = Value(type_ or _NO_TENSOR, value)
    return found


def _call(op: ir.Operation, reader: CallReader) -> Call | None:
    if not op.name.startswith("torch.") or op.name.startswith("torch.prim."):
        return None
    if any(str(r.type) == "!torch.int" for r in op.results):
        return None
    try:
        return reader.read(op)
    except (TypeError, UnknownOperator):
        return None
