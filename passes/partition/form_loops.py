"""Making ``dist.loop`` ops out of a flat rank program, by the plan of :mod:`loop_plan`."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch_mlir import ir

from shardc.diagnostics.plan import OneTimeAxis
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import DEVICE, is_constant, target_name
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.regions.loop import loop
from shardc.dialects.dist.regions.yield_op import yield_values
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.partition.loop_plan import LoopPlan, plan_loops
from shardc.passes.partition.reshard_lower import EDGE_KIND

_HEAVY = (
    "aten.mm",
    "aten.bmm",
    "aten.addmm",
    "aten.convolution",
    "shardc.attention",
    "aten.embedding",
    "dist.",
)
"""Ops whose results are kept from one loop to a later one; anything else is computed again there."""


def form_loops(block: ir.Block, codec: ShardingCodec, mesh: Mesh) -> None:
    """Move every op that depends on an iteration into a loop. Nothing happens where no time axis
    is in use.
    """
    plan = plan_loops(block, codec, mesh)
    if not plan.loops:
        return
    times = [mesh.whole(a.name) for a in mesh.axes if a.kind == "time"]
    if len(times) > 1:
        raise OneTimeAxis(axes=", ".join(a.name for a in times))
    _Former(block, codec, times[0], plan).run()


@dataclass
class _Body:
    """One loop while it is built: its ops, what it takes from outside and what it hands out."""

    ops: list[ir.Operation]
    captures: list[ir.Value] = field(default_factory=list)
    reduced: list[ir.Operation] = field(default_factory=list)
    stacked: list[tuple[ir.Value, int, ir.Value | None]] = field(default_factory=list)
    """(value inside, dim, the value that stood for the stack outside; None for one that a later
    loop reads).
    """


class _Former:
    def __init__(self, block: ir.Block, codec: ShardingCodec, axis: Axis, plan: LoopPlan) -> None:
        self._block = block
        self._codec = codec
        self._axis = axis
        self._plan = plan
        self._builder = CallBuilder(block)
        self._end = list(block.operations)[-1].operation
        self._bodies = [_Body(plan.inside[k]) for k in range(plan.loops)]
        self._stacks: dict[ir.Value, ir.Value] = {}
        self._edges: list[ir.Operation] = []
        self._moved: set[ir.Value] = set()

    def run(self) -> None:
        plan = self._plan
        for k in range(plan.loops):
            self._find_exits(k)
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
        """Constants and lists whose readers have copies of their own inside a loop by now."""
        for op in reversed([o.operation for o in self._block.operations]):
            if is_constant(op) and not any(True for r in op.results for _ in r.uses):
                op.erase()

    def _move(self, op: ir.Operation) -> None:
        """To the end of what is placed so far, the lists of tensors and of computed numbers that it reads
        with it.
        """
        for value in op.operands:
            maker = None if isinstance(value.owner, ir.Block) else value.owner.operation
            if maker is not None and value not in self._moved and is_constant(maker) and _is_computed(value):
                self._moved.add(value)
                self._move(maker)
        op.move_before(self._end)

    def _find_exits(self, k: int) -> None:
        body = self._bodies[k]
        for op in body.ops:
            for result in op.results:
                for use in result.uses:
                    edge = use.owner.operation
                    if EDGE_KIND not in edge.attributes:
                        continue
                    if edge.attributes[EDGE_KIND].value == "stack":
                        body.stacked.append((result, edge.attributes["dim"].value, edge.results[0]))
                    elif edge not in body.reduced:
                        body.reduced.append(edge)

    def _find_crossings(self, k: int) -> None:
        """What loop ``k`` reads of earlier loops: light ops get a copy in it, results of heavy ones are
        stacked.
        """
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
        owner = value.owner
        if not isinstance(owner, ir.Operation | ir.OpView):
            return value
        if value in copies:
            return copies[value]
        op = owner.operation
        constant, loop_ = is_constant(op), self._loop(op)
        if not constant and loop_ in (None, k):
            return value
        # A parameter that is stored in pieces is gathered again: what a loop keeps, it would keep whole.
        if not constant and _heavy(op) and "dist.in_loop" not in op.attributes:
            body = self._bodies[self._plan.loop_of[op.results[0]]]
            if all(v != value for v, _, outside in body.stacked if outside is None):
                body.stacked.append((value, self._stack_dim(value), None))
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

    def _loop(self, owner: ir.Operation | ir.OpView) -> int | None:
        return self._plan.loop_of.get(owner.results[0])

    def _stack_dim(self, value: ir.Value) -> int:
        shardings = [self._codec.read(a) for a in value.owner.attributes["dist.shardings"]]
        position = list(value.owner.results).index(value)
        cut = [
            d
            for d, axes in enumerate(shardings[position].dims)
            if any(a.name == self._axis.name for a in axes)
        ]
        return cut[0] if cut else 0  # each iteration's terms, one after the other

    def _build(self, k: int) -> None:
        body = self._bodies[k]
        location = body.ops[0].location
        types = [_carried_type(e) for e in body.reduced]
        before = ir.InsertionPoint(self._end)
        inits = [self._initial(e, t, before) for e, t in zip(body.reduced, types, strict=True)]
        self._gather_captures(k)
        stacked = [(_type(v), dim) for v, dim, _ in body.stacked]
        block, sums, stacks = loop(
            inits, body.captures, self._axis, self._codec, stacked=stacked, loc=location, ip=before
        )
        carried = list(block.arguments)[: len(inits)]
        mapping = dict(zip(body.captures, list(block.arguments)[len(inits) :], strict=True))
        _Filler(self, k, block, mapping).fill(body.ops)
        inner = CallBuilder(block)
        here = ir.InsertionPoint(block)
        nexts = [
            self._combine(inner, acc, edge, type_, here)
            for acc, edge, type_ in zip(carried, body.reduced, types, strict=True)
        ]
        yield_values(nexts, [v for v, _, _ in body.stacked], loc=location, ip=here)
        self._hand_out(body, sums, stacks, before)

    def _hand_out(
        self, body: _Body, sums: list[ir.Value], stacks: list[ir.Value], ip: ir.InsertionPoint
    ) -> None:
        for edge, result in zip(body.reduced, sums, strict=True):
            wanted = _type(edge.results[0])
            final = result
            if _type(result).dtype != wanted.dtype:
                final = self._cast(self._builder, result, wanted, edge.location, ip)
            edge.results[0].replace_all_uses_with(final)
        for (value, _, outside), result in zip(body.stacked, stacks, strict=True):
            if outside is None:
                self._stacks[value] = result
            else:
                outside.replace_all_uses_with(result)

    def _gather_captures(self, k: int) -> None:
        body = self._bodies[k]
        seen: set[ir.Value] = set()
        for op in body.ops:
            self._capture(op, k, seen)

    def _capture(self, op: ir.Operation, k: int, seen: set[ir.Value]) -> None:
        """Note what an op of loop ``k`` reads from outside, through lists too."""
        for value in op.operands:
            if value in seen:
                continue
            seen.add(value)
            owner = value.owner
            is_op = isinstance(owner, ir.Operation | ir.OpView)
            if is_op and is_constant(owner.operation):
                self._capture(owner.operation, k, seen)
            elif value in self._stacks:
                self._bodies[k].captures.append(self._stacks[value])
            elif not is_op or self._loop(owner) != k:
                self._bodies[k].captures.append(value)

    def _initial(self, edge: ir.Operation, type_: TensorType, ip: ir.InsertionPoint) -> ir.Value:
        kind = edge.attributes[EDGE_KIND].value
        start = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}[kind]
        if not type_.dtype.is_floating_point:
            limits = torch.iinfo(type_.dtype) if type_.dtype != torch.bool else None
            start = 0 if kind == "sum" or limits is None else (limits.min if kind == "max" else limits.max)
        args = (type_.shape, start, type_.dtype, None, DEVICE, False)
        return self._builder.call("aten.full", args, [type_], edge.location, ip).results[0]

    def _combine(
        self, inner: CallBuilder, acc: ir.Value, edge: ir.Operation, type_: TensorType, ip: ir.InsertionPoint
    ) -> ir.Value:
        value = edge.operands[0]
        if _type(value).dtype != type_.dtype:
            value = self._cast(inner, value, type_, edge.location, ip)
        kind = edge.attributes[EDGE_KIND].value
        target, rest = {
            "sum": ("aten.add.Tensor", (1,)),
            "max": ("aten.maximum", ()),
            "min": ("aten.minimum", ()),
        }[kind]
        phase = {"dist.phase": edge.attributes["dist.phase"]} if "dist.phase" in edge.attributes else {}
        return inner.call(target, (acc, value, *rest), [type_], edge.location, ip, phase).results[0]

    def _cast(
        self,
        builder: CallBuilder,
        value: ir.Value,
        type_: TensorType,
        loc: ir.Location,
        ip: ir.InsertionPoint,
    ) -> ir.Value:
        args = (value, type_.dtype, None, None, None, False, None)
        return builder.call("aten._to_copy", args, [type_], loc, ip).results[0]


class _Filler:
    """Moves a loop's ops into its body and makes them read what the body sees."""

    def __init__(self, former: _Former, k: int, block: ir.Block, mapping: dict[ir.Value, ir.Value]) -> None:
        self._former = former
        self._k = k
        self._block = block
        self._mapping = mapping

    def fill(self, ops: list[ir.Operation]) -> None:
        end = ir.InsertionPoint(self._block)
        for op in ops:
            operands = [self._inside(v, end) for v in op.operands]
            op.detach_from_parent()
            end.insert(op)
            for i, value in enumerate(operands):
                op.operands[i] = value

    def _inside(self, value: ir.Value, end: ir.InsertionPoint) -> ir.Value:
        found = self._mapping.get(value)
        if found is not None:
            return found
        owner = value.owner
        if not isinstance(owner, ir.Operation | ir.OpView) or self._former._loop(owner) == self._k:
            return value
        if value in self._former._stacks:
            made = self._cut_again(value, end)
        else:
            made = self._copy_constant(value, owner.operation, end)
        self._mapping[value] = made
        return made

    def _copy_constant(self, value: ir.Value, op: ir.Operation, end: ir.InsertionPoint) -> ir.Value:
        assert is_constant(op), f"{op.name} is read by a loop that did not capture it"
        operands = [self._inside(v, end) for v in op.operands]
        copy = op.clone(end)
        for i, operand in enumerate(operands):
            copy.operation.operands[i] = operand
        for old, new in zip(op.results, copy.operation.results, strict=True):
            self._mapping[old] = new
        return self._mapping[value]

    def _cut_again(self, value: ir.Value, end: ir.InsertionPoint) -> ir.Value:
        former = self._former
        stack = self._mapping[former._stacks[value]]
        i64 = ir.IntegerType.get_signless(64, self._block.owner.context)
        attributes = {
            "dim": ir.IntegerAttr.get(i64, former._stack_dim(value)),
            "axes": former._codec.axes((former._axis,)),
        }
        return ir.Operation.create(
            "dist.slice", [value.type], [stack], attributes, loc=value.owner.location, ip=end
        ).result


def _heavy(op: ir.Operation) -> bool:
    name = op.name if op.name.startswith("dist.") else target_name(op)
    return name.startswith(_HEAVY) and op.name not in ("dist.slice", "dist.offset")


def _is_computed(value: ir.Value) -> bool:
    """Whether a value is not known until the program runs."""
    if isinstance(value.owner, ir.Block):
        return True
    op = value.owner.operation
    return not is_constant(op) or any(map(_is_computed, op.operands))


def _type(value: ir.Value) -> TensorType:
    found = read_type(value.type)
    assert found is not None
    return found


def _carried_type(edge: ir.Operation) -> TensorType:
    """Half-precision terms are summed in float32, as a full batch's would be inside one matmul."""
    type_ = _type(edge.results[0])
    if type_.dtype in (torch.bfloat16, torch.float16):
        return TensorType(type_.shape, torch.float32)
    return type_
