"""Reader of a block: its steps in order, each of them an opaque op, a view, or the nodes of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader, IntValue, OpCall, is_constant, leaves, replace_leaves
from shardc.dialects.aten.schema import UnknownOperator
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import SizeNotKnown
from shardc.dialects.kern.strides import DENSE
from shardc.passes.fuse.grouping.legal import Refused, check_parts
from shardc.passes.fuse.lower.matmul import is_by_vector
from shardc.passes.fuse.lower.table import is_worth_alone, lower
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.compared import compared
from shardc.passes.fuse.reading.graph import Block, Node, Step, Value, View
from shardc.passes.fuse.reading.rows import UNROLLED
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.view import CUTS, VIEWS, view_of

_NO_TENSOR = TensorType((), torch.uint8)
"""Placeholder for the type of an integer or a tuple; kernels read neither."""

LEFT = "is left to ATen or a library"
"""Reason why a call that could be lowered stays a call."""

_CUTS = frozenset(f"torch.{target}" for target in CUTS)


class _Values(dict[ir.Value, Value]):
    """Values by SSA value, created at their first use."""

    def __init__(self, symbols: Symbols) -> None:
        super().__init__()
        self.symbols = symbols
        self.compared: set[ir.Operation] = set()

    def __missing__(self, value: ir.Value) -> Value:
        found = self[value] = Value(self.symbols.type(value) or _NO_TENSOR, value)
        return found


def read_block(
    block: ir.Block,
    reader: CallReader,
    exclude: frozenset[ir.Value] = frozenset(),
    without: frozenset[int] = frozenset(),
    calls: frozenset[str | int] = frozenset(),
) -> Block:
    """Return the steps of ``block``.

    Some calls stay opaque: producers of values in ``exclude``, calls whose number is in ``without``, and
    calls whose target or number is in ``calls``.
    """
    values, ops = _Values(Symbols(block)), steps_of(block)
    values.compared = compared(ops)
    steps = [_step(n, op, values, reader, exclude, without, calls) for n, op in enumerate(ops)]
    parts = {step.op for step in steps if step.nodes and step.target in CUTS}
    for step in steps:
        step.is_unread = bool(step.nodes) and parts.issuperset(
            u.owner for r in step.op.results for u in r.uses
        )
    returned = [values[v] for v in list(block.operations)[-1].operation.operands]
    return Block(block, steps, values, returned, values.symbols)


def steps_of(block: ir.Block) -> list[ir.Operation]:
    """Return the ops that are the steps of ``block``, by number."""
    ops = [o.operation for o in block.operations]
    return [op for op in ops[:-1] if not (op.name.startswith("torch.") and is_constant(op))]


def _step(
    number: int,
    op: ir.Operation,
    values: _Values,
    reader: CallReader,
    exclude: frozenset[ir.Value],
    without: frozenset[int],
    calls: frozenset[str | int],
) -> Step:
    call = _call(op, reader)
    if call is None:
        operands = [values[v] for v in op.operands]
        return Step(number, op, op.name, operands, [values[r] for r in op.results], why="is not an ATen call")
    operands = [values[v] for v in call.operands]
    step = Step(number, op, call.spec.target, operands, [])
    spec = _with_sizes(call, operands, values)
    known = not any(map(_is_unknown, (*leaves(spec.args), *spec.results)))
    free = exclude.isdisjoint(op.results)
    if known and spec.target in VIEWS:
        _read_view(step, call.operands[0], spec, values, free and number not in without)
        return step
    stays = number in calls or (spec.target in calls and not is_by_vector(spec.target, operands))
    if stays:
        step.why = LEFT
    may = known and number not in without and not stays
    made = _lowered(step, spec, free, op in values.compared) if may else None
    step.results = [
        None if type_ is None else _named(values, result, made[i] if made else None)
        for i, (result, type_) in enumerate(zip(op.results, spec.results, strict=True))
    ]
    return step


def _read_view(step: Step, operand: ir.Value, spec: OpCall, values: _Values, free: bool) -> None:
    """Complete a step that is a view. If only parts of its source are read, it computes its part instead."""
    view, (result,) = view_of(spec, step.operands[0]), step.op.results
    part = _part(step, operand, spec, view) if view is not None and free else None
    if part is not None:
        step.results = [_named(values, result, part)]
        return
    if view is not None and DENSE in step.op.attributes:
        view = replace(view, dense=True)
    values[result].view, step.is_view = view, True
    step.results = [values[result]]


def _is_unknown(leaf: object) -> bool:
    return isinstance(leaf, IntValue) or (isinstance(leaf, TensorType) and not leaf.is_static)


def _with_sizes(call: Call, operands: list[Value], values: _Values) -> OpCall:
    """Return the call with known symbolic sizes instead of ``?`` and of the program's integers."""
    spec = call.spec
    if not values.symbols.any:
        return spec
    given = iter(zip(call.operands, operands, strict=True))

    def known(leaf: object) -> object:
        if not isinstance(leaf, TensorType | IntValue):
            return leaf
        value, operand = next(given)
        if isinstance(leaf, TensorType):
            return operand.type
        size = values.symbols.integer(value)
        return leaf if size is None else size

    results = [
        None if t is None else values.symbols.type(r) for r, t in zip(call.results, spec.results, strict=True)
    ]
    return OpCall(spec.target, replace_leaves(spec.args, known), tuple(results))


def _part(step: Step, operand: ir.Value, spec: OpCall, view: View) -> Value | None:
    """Return a pointwise op's result on the slice ``view``, if all readers of its full result are slices.

    None otherwise.
    """
    if view.cut is None or view.source.node is None or any(u.owner.name not in _CUTS for u in operand.uses):
        return None
    builder, type_ = Builder(step.number), spec.results[0]
    assert type_ is not None
    try:
        part = builder.sliced(view.source, view.cut, type_)
        check_parts(builder.nodes)
    except Refused:
        return None
    if part is not None:
        step.nodes, step.always = builder.nodes, True
    return part


_EXTREMA = {"aten.max.dim": "aten.amax", "aten.min.dim": "aten.amin"}
"""Extrema with indices, and the same without. Eager's results are equal, also for NaN."""


def _lowered(step: Step, call: OpCall, free: bool, steady: bool) -> list[Value | None] | None:
    if not free:
        step.why = "makes a result of the graph whose strides callers rely on"
        return None
    builder = Builder(step.number, unrolls=call.target in UNROLLED, steady=steady)
    try:
        made = lower(builder, _as_read(step, call), [v for v in step.operands if v.type is not _NO_TENSOR])
        made += [None] * (len(call.results) - len(made))
    except (NotLowered, SizeNotKnown) as why:
        step.why = str(why)
        return None
    if any(m is None and any(True for _ in r.uses) for r, m in zip(step.op.results, made, strict=True)):
        step.why = "makes an empty tensor that is read"
        return None
    unread = [m for r, m in zip(step.op.results, made, strict=True) if not any(True for _ in r.uses)]
    dropped = _drop_unread(builder, [m for m in made if m not in unread])
    made = [None if m is not None and m.node in dropped else m for m in made]
    try:
        check_parts(builder.nodes)
    except Refused as why:
        step.why = f"is not one kernel: {why}"
        return None
    step.nodes, step.always = builder.nodes, is_worth_alone(call)
    # As text: 0.0 == -0.0 == False.
    numbers = tuple([repr(leaf) for leaf in leaves(call.args) if not isinstance(leaf, TensorType)])
    for position, node in enumerate(builder.nodes):
        node.what = call, numbers, position, node.reduce, steady  # a product is a contraction, or a sum
    return made


def _drop_unread(builder: Builder, read: Sequence[Value | None]) -> list[Node]:
    """Drop and return the nodes that only compute results that nothing reads, such as the indices of a pool.

    They would read the call's operands beside the kernel that computes the results that are ``read``.
    """
    results = [value.node for value in read if value is not None] or builder.nodes
    left = [*results, *(node for node in builder.nodes if node.check)]
    own, needed = set(builder.nodes), set[Node]()
    while left:
        node = left.pop()
        if node in own and node not in needed:
            needed.add(node)
            left += [access.base.node for access in node.accesses]
    dropped = [node for node in builder.nodes if node not in needed]
    builder.nodes = [node for node in builder.nodes if node in needed]
    return dropped


def _as_read(step: Step, call: OpCall) -> OpCall:
    """Return the call to lower: ``amin`` for a ``min.dim`` whose indices are not read."""
    if call.target not in _EXTREMA or any(True for _ in step.op.results[1].uses):
        return call
    return OpCall(_EXTREMA[call.target], (call["self"], (call["dim"],), call["keepdim"]), call.results[:1])


def _named(values: _Values, result: ir.Value, made: Value | None) -> Value:
    """Return the value of a result: the one that a lowering made, or a new one."""
    if made is None:
        return values[result]
    values[result] = made
    made.ir = result
    return made


def _call(op: ir.Operation, reader: CallReader) -> Call | None:
    if not op.name.startswith("torch.") or op.name.startswith("torch.prim."):
        return None
    if any(reader.tensor_type(r.type) is None and str(r.type) == "!torch.int" for r in op.results):
        return None
    try:
        return reader.read(op)
    except (TypeError, UnknownOperator):
        return None
