"""Forming of ``dist.loop`` ops in a flat rank program, by the plan of :mod:`loop_plan`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch_mlir import ir

from shardc.diagnostics.passes.plan import OneTimeAxis
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import DEVICE, is_constant, target_name
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.regions.loop import loop
from shardc.dialects.dist.regions.yield_op import yield_values
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.manager.attributes import i64
from shardc.passes.partition.local_call import CallWriter, type_of
from shardc.passes.partition.loop_plan import LoopPlan, plan_loops
from shardc.passes.partition.reshard_lower import EDGE_KIND

_MATMULS = ("aten.mm", "aten.bmm", "aten.addmm")
_HEAVY = (*_MATMULS, "aten.convolution", "shardc.attention", "aten.embedding", "dist.")
"""Ops whose results are kept for a later loop; results of other ops are recomputed there."""
_SCALED = ("aten.mul.Scalar", "aten._to_copy")
Pair = tuple[ir.Value, ir.Value]


def form_loops(block: ir.Block, codec: ShardingCodec, mesh: Mesh) -> None:
    """Move every op that depends on an iteration into a loop. Does nothing if no time axis is used."""
    plan = plan_loops(block, codec, mesh)
    if not plan.loops:
        return
    times = [mesh.whole(a.name) for a in mesh.axes if a.kind == "time"]
    if len(times) > 1:
        raise OneTimeAxis(axes=", ".join(a.name for a in times))
    _Former(block, codec, times[0], plan).run()


@dataclass
class _Body:
    """A loop under construction: its ops, the values that it captures, and the values that leave it."""

    ops: list[ir.Operation]
    captures: list[ir.Value] = field(default_factory=list)
    reduced: list[ir.Operation] = field(default_factory=list)
    stacked: list[tuple[ir.Value, int, ir.Value | None]] = field(default_factory=list)
    """(value inside, dim, the placeholder of the stack outside; None if a later loop reads it)."""


class _Former:
    def __init__(self, block: ir.Block, codec: ShardingCodec, axis: Axis, plan: LoopPlan) -> None:
        self._block, self.codec, self.axis, self._plan = block, codec, axis, plan
        self._builder = CallBuilder(block)
        self._end = list(block.operations)[-1].operation
        self._bodies = [_Body(plan.inside[k]) for k in range(plan.loops)]
        self.stacks: dict[ir.Value, ir.Value] = {}
        self._edges: list[ir.Operation] = []
        self._moved: set[ir.Value] = set()

    def run(self) -> None:
        plan = self._plan
        for body in self._bodies:
            _find_exits(body)
        for k in range(plan.loops):
            self._find_crossings(k)
        for stage in range(plan.loops + 1):
            for op in plan.outside[stage]:
                self._move(op)
                if EDGE_KIND in op.attributes:
                    self._edges.append(op)
            if stage < plan.loops:
                self._build(stage)
        for edge in reversed(self._edges):
            edge.erase()
        self._drop_unread()

    def _drop_unread(self) -> None:
        """Erase constants and lists whose readers now use copies inside a loop."""
        for op in reversed([o.operation for o in self._block.operations]):
            if is_constant(op) and not any(True for r in op.results for _ in r.uses):
                op.erase()

    def _move(self, op: ir.Operation) -> None:
        """Move an op behind the ops placed so far, with the lists and computed numbers that it reads."""
        for value in op.operands:
            if value not in self._moved and _is_constant(value) and _is_computed(value):
                self._moved.add(value)
                self._move(value.owner.operation)
        op.move_before(self._end)

    def _find_crossings(self, k: int) -> None:
        """Copy light ops of earlier loops that loop ``k`` reads into it; stack results of heavy ones."""
        copies: dict[ir.Value, ir.Value] = {}
        added: list[ir.Operation] = []
        for op in self._bodies[k].ops:
            for position, value in enumerate(op.operands):
                here = self._cross(value, k, copies, added)
                if here != value:
                    op.operands[position] = here
        self._bodies[k].ops[:0] = added

    def _cross(
        self, value: ir.Value, k: int, copies: dict[ir.Value, ir.Value], added: list[ir.Operation]
    ) -> ir.Value:
        if not isinstance(value, ir.OpResult):
            return value
        if value in copies:
            return copies[value]
        op = value.owner.operation
        constant, loop_ = is_constant(op), self.loop_of(value)
        if not constant and loop_ in (None, k):
            return value
        # A parameter that is stored in shards is gathered again; keeping it would keep the whole parameter.
        if not constant and _heavy(op) and "dist.in_loop" not in op.attributes:
            body = self._bodies[self._plan.loop_of[op.results[0]]]
            if all(v != value for v, _, outside in body.stacked if outside is None):
                body.stacked.append((value, self.stack_dim(value), None))
            return value
        operands = [self._cross(v, k, copies, added) for v in op.operands]
        if constant and operands == list(op.operands):
            return value
        copy = op.clone(ir.InsertionPoint(op)).operation
        for i, operand in enumerate(operands):
            copy.operands[i] = operand
        if not constant:
            self._plan.loop_of[copy.results[0]] = k
            added.append(copy)
        copies.update(zip(op.results, copy.results, strict=True))
        return copies[value]

    def loop_of(self, value: ir.OpResult) -> int | None:
        """Return the number of the loop in which a value is computed, or None."""
        return self._plan.loop_of.get(value.owner.results[0])

    def stack_dim(self, value: ir.OpResult) -> int:
        """Return the dim of a value that iterations split; 0 for terms, which are stacked."""
        sharding = self.codec.read(value.owner.attributes["dist.shardings"][value.result_number])
        cut = (d for d, axes in enumerate(sharding.dims) if any(a.name == self.axis.name for a in axes))
        return next(cut, 0)

    def _build(self, k: int) -> None:
        body = self._bodies[k]
        location = body.ops[0].location
        before = ir.InsertionPoint(self._end)
        inits = [_initial(CallWriter(self._builder, e.location, before), e) for e in body.reduced]
        self._gather_captures(k)
        stacked = [(type_of(v), dim) for v, dim, _ in body.stacked]
        block, sums, stacks = loop(
            inits, body.captures, self.axis, self.codec, stacked=stacked, loc=location, ip=before
        )
        carried, captured = block.arguments[: len(inits)], block.arguments[len(inits) :]
        inner, here = CallBuilder(block), ir.InsertionPoint(block)
        _Filler(self, k, here, zip(body.captures, captured, strict=True)).fill(body.ops)
        pairs = zip(carried, body.reduced, strict=True)
        nexts = [_combine(inner, acc, edge, self._behind(edge.operands[0], k, here)) for acc, edge in pairs]
        yield_values(nexts, [v for v, _, _ in body.stacked], loc=location, ip=here)
        for edge, result in zip(body.reduced, sums, strict=True):
            writer = CallWriter(self._builder, edge.location, before)
            edge.results[0].replace_all_uses_with(writer.cast(result, type_of(edge.results[0]).dtype))
        for (value, _, outside), result in zip(body.stacked, stacks, strict=True):
            if outside is None:
                self.stacks[value] = result
            else:
                outside.replace_all_uses_with(result)

    def _behind(self, term: ir.Value, k: int, end: ir.InsertionPoint) -> ir.InsertionPoint:
        """Return the place to add a term to its sum: as soon as it is computed, so that it is not kept.

        Terms from collectives, which are small, are added at the end, so that collectives can be packed.
        """
        is_inside = isinstance(term, ir.OpResult) and self.loop_of(term) == k
        if not is_inside or is_received(term):
            return end
        return ir.InsertionPoint.after(term.owner.operation)

    def _gather_captures(self, k: int) -> None:
        """Record the values that the ops of loop ``k`` read from outside, also through lists."""
        captures: dict[ir.Value, None] = {}

        def capture(op: ir.Operation) -> None:
            for value in op.operands:
                if _is_constant(value):
                    capture(value.owner.operation)
                elif value in self.stacks:
                    captures[self.stacks[value]] = None
                elif not isinstance(value, ir.OpResult) or self.loop_of(value) != k:
                    captures[value] = None

        for op in self._bodies[k].ops:
            capture(op)
        self._bodies[k].captures = list(captures)


def is_received(term: ir.Value) -> bool:
    """Return whether a term is the result of a collective, possibly scaled or converted."""
    while isinstance(term, ir.OpResult) and not term.owner.operation.name.startswith("dist."):
        operation = term.owner.operation
        if is_constant(operation) or target_name(operation) not in _SCALED:
            return False
        term = operation.operands[0]
    return isinstance(term, ir.OpResult)


def _initial(writer: CallWriter, edge: ir.Operation) -> ir.Value:
    """Return the initial value of a sum, maximum or minimum over iterations."""
    type_, kind = _carried_type(edge), edge.attributes[EDGE_KIND].value
    start = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}[kind]
    if not type_.dtype.is_floating_point:
        is_bool = type_.dtype == torch.bool
        least, most = (0, 1) if is_bool else (torch.iinfo(type_.dtype).min, torch.iinfo(type_.dtype).max)
        start = {"sum": 0, "max": least, "min": most}[kind]
    return writer.call("aten.full", type_.shape, start, type_.dtype, None, DEVICE, False)


def _find_exits(body: _Body) -> None:
    for op in body.ops:
        for result in op.results:
            for edge in (use.owner.operation for use in result.uses):
                if EDGE_KIND not in edge.attributes:
                    continue
                if edge.attributes[EDGE_KIND].value == "stack":
                    body.stacked.append((result, edge.attributes["dim"].value, edge.results[0]))
                elif edge not in body.reduced:
                    body.reduced.append(edge)


_COMBINE = {"sum": ("aten.add.Tensor", (1,)), "max": ("aten.maximum", ()), "min": ("aten.minimum", ())}


def _combine(inner: CallBuilder, acc: ir.Value, edge: ir.Operation, ip: ir.InsertionPoint) -> ir.Value:
    value = CallWriter(inner, edge.location, ip).cast(edge.operands[0], type_of(acc).dtype)
    target, rest = _COMBINE[edge.attributes[EDGE_KIND].value]
    return CallWriter.at(inner, edge, ip).call(target, acc, value, *rest)


class _Filler:
    """Moves a loop's ops into its body, and redirects their operands to values of the body."""

    def __init__(self, former: _Former, k: int, end: ir.InsertionPoint, seen: Iterable[Pair]) -> None:
        self._former, self._k, self._end = former, k, end
        self._mapping: dict[ir.Value, ir.Value] = dict(seen)

    def fill(self, ops: list[ir.Operation]) -> None:
        for op in ops:
            operands = [self._inside(v) for v in op.operands]
            op.detach_from_parent()
            self._end.insert(op)
            for i, value in enumerate(operands):
                op.operands[i] = value

    def _inside(self, value: ir.Value) -> ir.Value:
        """Return the value of the body that replaces ``value``."""
        if value in self._mapping:
            return self._mapping[value]
        if not isinstance(value, ir.OpResult) or self._former.loop_of(value) == self._k:
            return value
        if value in self._former.stacks:
            self._mapping[value] = self._cut_again(value)
        else:
            self._copy_constant(value.owner.operation)
        return self._mapping[value]

    def _copy_constant(self, op: ir.Operation) -> None:
        assert is_constant(op), f"{op.name} is read by a loop that did not capture it"
        operands = [self._inside(v) for v in op.operands]
        copy = op.clone(self._end).operation
        for i, operand in enumerate(operands):
            copy.operands[i] = operand
        self._mapping.update(zip(op.results, copy.results, strict=True))

    def _cut_again(self, value: ir.OpResult) -> ir.Value:
        former, loc = self._former, value.owner.location
        stack, dim = self._mapping[former.stacks[value]], i64(former.stack_dim(value), value.context)
        attributes, types = {"dim": dim, "axes": former.codec.axes((former.axis,))}, [value.type]
        return ir.Operation.create("dist.slice", types, [stack], attributes, loc=loc, ip=self._end).result


def _heavy(op: ir.Operation) -> bool:
    name = op.name if op.name.startswith("dist.") else target_name(op)
    return name.startswith(_HEAVY) and op.name not in ("dist.slice", "dist.offset")


def _is_constant(value: ir.Value) -> bool:
    return isinstance(value, ir.OpResult) and is_constant(value.owner.operation)


def _is_computed(value: ir.Value) -> bool:
    """Return whether a value is known only at run time."""
    return not _is_constant(value) or any(map(_is_computed, value.owner.operands))


def _carried_type(edge: ir.Operation) -> TensorType:
    """Return the type of a carried value: half-precision terms are summed in f32, as inside a matmul."""
    type_ = type_of(edge.results[0])
    is_half = type_.dtype in (torch.bfloat16, torch.float16)
    return TensorType(type_.shape, torch.float32) if is_half else type_
