"""What level 3 promises: between one op's layout and the next's stands just what leads from one to the other.

A value's layout is what its maker says (``dist.shardings``), or follows from its operand's. A collective
must lead from one layout to the other, a call make of its operands' layouts what its rule says, and a loop
combine terms over its axis. Ops that a rule's local version adds say nothing of their layout: what reads them
is taken at its word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import torch
from torch_mlir import ir

from shardc.diagnostics.levels import LevelBroken
from shardc.dialects.aten.call import (
    CallReader,
    IntValue,
    OpCall,
    is_constant,
    leaves,
    replace_leaves,
    target_name,
)
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.check import check_sharding
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.regions.loop_values import TUPLES, loop_values
from shardc.dialects.dist.reshard_steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    ToPartial,
)
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.location import source_line
from shardc.dialects.rules.rule import find_rule
from shardc.passes.manager.attributes import edge_attributes
from shardc.passes.manager.sharded_level import call_problem, edge_problem
from shardc.passes.partition.time_part import join_time, space_part

_COMBINES = {"torch.aten.add.Tensor": "sum", "torch.aten.maximum": "max", "torch.aten.minimum": "min"}
_LEFT_OVER = ("dist.reshard", "dist.constraint", "builtin.unrealized_conversion_cast")
_SAME = ("torch.aten._to_copy", "dist.broadcast")
_INTEGERS = [torch.iinfo(dtype) for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)]
_STARTS = {
    "sum": {0.0},
    "max": {-inf, 0.0, *(float(i.min) for i in _INTEGERS)},
    "min": {inf, *(float(i.max) for i in _INTEGERS)},
}
"""What a reduction over iterations may start from, in floats, integers and truth values."""


def _read(op: ir.Operation, name: str, codec: ShardingCodec) -> int | str | Axes | Sharding:
    if name == "axes":
        return codec.read_axes(op.attributes[name])
    if name in ("source", "target"):
        return codec.read(op.attributes[name])
    return op.attributes[name].value


def _axes(op: ir.Operation, codec: ShardingCodec) -> Axes:
    return codec.read_axes(op.attributes["axes"]) if "axes" in op.attributes else ()


def _step(kind: Callable[..., Step], *names: str) -> Callable[[ir.Operation, ShardingCodec], Step]:
    """What makes the step that an op stands for of the op's attributes ``names``."""
    return lambda op, codec: kind(*(_read(op, name, codec) for name in names))


STEPS = {
    "dist.all_gather": _step(AllGather, "dim", "axes"),
    "dist.all_reduce": _step(AllReduce, "axes", "reduction"),
    "dist.all_to_all": _step(AllToAll, "split_dim", "concat_dim", "axes"),
    "dist.partial": _step(ToPartial, "axes"),
    "dist.permute": _step(Permute, "source", "target"),
    "dist.reduce_scatter": _step(ReduceScatter, "dim", "axes", "reduction"),
    "dist.slice": _step(Slice, "dim", "axes"),
}
"""What an op does to the layout of its operand."""


class RankLevel:
    """Follows the layouts of a rank's program."""

    def __init__(self, function: ir.Operation, mesh: Mesh) -> None:
        self._function, self._mesh = function, mesh
        self._codec = ShardingCodec(function.context, mesh)
        self._reader = CallReader()
        self._layouts: dict[ir.Value, Sharding] = {}
        self._right: set[object] = set()

    def check(self) -> None:
        """Raises LevelBroken at the first op that breaks the level."""
        block = self._function.regions[0].blocks[0]
        returned = list(block.operations)[-1].operation.operands
        for position, argument in enumerate(block.arguments):
            self._layouts[argument] = self._edge("argument", "arg_attrs", position, argument)
        said = [self._edge("result", "res_attrs", position, v) for position, v in enumerate(returned)]
        self._check_block(block, ())
        for position, (value, sharding) in enumerate(zip(returned, said, strict=True)):
            if (found := self._layouts.get(value, sharding)) != sharding:
                problem = f"result {position} is {found}, but the step says {sharding}"
                raise LevelBroken(level=3, problem=problem)

    def _edge(self, what: str, which: str, position: int, value: ir.Value) -> Sharding:
        """The layout of an argument or a result, which must cut its global type to what a rank has."""
        row = edge_attributes(self._function, which, position)
        if "dist.sharding" not in row:
            raise LevelBroken(level=3, problem=f"{what} {position} has no dist.sharding")
        sharding = self._codec.read(row["dist.sharding"]).normal()
        problem = edge_problem(sharding, self._mesh) or _shape_problem(sharding, row, value)
        if problem:
            raise LevelBroken(level=3, problem=f"{what} {position} {problem}")
        return sharding

    def _check_block(self, block: ir.Block, loops: tuple[str, ...]) -> None:
        """``loops``: the axes of the loops around the block."""
        for op in [view.operation for view in block.operations][:-1]:
            if problem := self._problem(op, loops):
                raise LevelBroken(level=3, problem=problem, where=source_line(op.location))

    def _problem(self, op: ir.Operation, loops: tuple[str, ...]) -> str | None:
        if op.name in _LEFT_OVER:
            return f"{op.name} is left over"
        if op.name == "dist.loop":
            return self._loop_problem(op, loops)
        if is_constant(op) or op.name in TUPLES:
            return None
        said = self._said(op)
        for sharding in said or ():
            if problem := check_sharding(sharding, len(sharding.dims), self._mesh):
                return f"a result of {target_name(op)} is {sharding}: {problem}"
        if op.name in STEPS:
            return self._step_problem(op, said, loops)
        if said is not None:
            self._layouts.update(zip(op.results, said, strict=True))
            return self._call_problem(op, said) if op.name.startswith("torch.") else None
        if op.name in _SAME and op.operands[0] in self._layouts:
            self._layouts[op.results[0]] = self._layouts[op.operands[0]]
        return None

    def _said(self, op: ir.Operation) -> list[Sharding] | None:
        array = op.attributes.get("dist.shardings")
        return None if array is None else [self._codec.read(attribute).normal() for attribute in array]

    def _step_problem(
        self, op: ir.Operation, said: list[Sharding] | None, loops: tuple[str, ...]
    ) -> str | None:
        """What is wrong with a collective, a slice or the like between the layouts beside it."""
        source = self._layouts.get(op.operands[0])
        if source is None:
            if said is not None:
                self._layouts[op.results[0]] = said[0]
            return None
        try:
            made = self._applied(STEPS[op.name](op, self._codec), source)
        except ValueError as problem:
            return f"{op.name} does not apply to {source}: {problem}"
        self._layouts[op.results[0]] = made
        if said is not None and said[0] != made:
            return f"{op.name} makes {made} of {source}, but its result is {said[0]}"
        if problem := check_sharding(made, len(made.dims), self._mesh):
            return f"{op.name} makes {made} of {source}: {problem}"
        if any(self._mesh.is_time(axis) and axis.name not in loops for axis in _axes(op, self._codec)):
            return f"{op.name} is over a time axis, and in no loop over it"
        return None

    def _applied(self, step: Step, source: Sharding) -> Sharding:
        """The layout that a step makes. Raises ValueError where it does not apply."""
        if not isinstance(step, Permute):
            return step.apply(source).normal()
        # Devices trade blocks within an iteration, whatever iterations cut.
        space = space_part(source, self._mesh)
        return join_time(step.apply(space), source, self._mesh).normal()

    def _call_problem(self, op: ir.Operation, said: list[Sharding]) -> str | None:
        """What is wrong with a call whose operands' layouts are all known."""
        call = self._reader.read(op)
        leaves_ = [leaf for leaf in leaves(call.spec.args) if isinstance(leaf, TensorType | IntValue)]
        values = [v for v, leaf in zip(call.operands, leaves_, strict=True) if isinstance(leaf, TensorType)]
        operands = [self._layouts[v] for v in values if v in self._layouts]
        key = (call.spec, tuple(operands), tuple(said))
        if len(operands) != len(values) or key in self._right:
            return None
        whole = _whole_call(call.spec, operands, said)
        rule = find_rule(whole)
        found = None if rule is None else call_problem(rule, operands, said)
        if found is None:
            self._right.add(key)
        return found and f"{found[0]} of {whole.target} {found[1]}"

    def _loop_problem(self, op: ir.Operation, loops: tuple[str, ...]) -> str | None:
        (axis,) = self._codec.read_axes(ir.ArrayAttr.get([op.attributes["axis"]], op.context))
        body, values = op.regions[0].blocks[0], loop_values(op)
        inside = list(body.arguments)[len(values.inits) :]
        for argument, value in zip(inside, values.captures, strict=True):
            if value in self._layouts:
                self._layouts[argument] = self._layouts[value]
        self._check_block(body, (*loops, axis.name))
        for n, following in enumerate(values.following):
            total = values.carried[n] if values.carried else None
            if problem := self._sum_problem(axis, body.arguments[n], values.inits[n], following, total):
                return problem
        for n, row in enumerate(values.rows):
            stack = values.stacked[n] if values.stacked else None
            if problem := self._stack_problem(axis, op.attributes["stack_dims"][n].value, row, stack):
                return problem
        return None

    def _sum_problem(
        self, axis: Axis, carried: ir.Value, init: ir.Value, following: ir.Value, total: ir.Value | None
    ) -> str | None:
        """What is wrong with a value that a loop carries: it combines terms over the loop's axis."""
        kind, term = _combined(carried, following)
        if term is None:
            return f"a dist.loop over {axis.name} carries what is no sum, maximum or minimum of terms"
        start = _start(init)
        if start is not None and start not in _STARTS[kind]:
            return f"a {kind} over the iterations of {axis.name} starts from {start}"
        layout = self._layouts.get(term)
        if layout is None:
            return None
        try:
            combined = AllReduce((axis,), kind).apply(layout).normal()
        except ValueError:
            return f"a {kind} over the iterations of {axis.name} takes what is {layout}"
        if total is not None:
            self._layouts[total] = combined
        return None

    def _stack_problem(self, axis: Axis, dim: int, row: ir.Value, stack: ir.Value | None) -> str | None:
        """What is wrong with a value whose blocks a loop puts one after the other.

        Terms and whole values are stacked too, only to be taken apart again by a later loop.
        """
        layout = self._layouts.get(row)
        if layout is None or all(axis not in axes for axes in layout.dims):
            return None
        try:
            whole = AllGather(dim, (axis,)).apply(layout).normal()
        except ValueError:
            return f"iterations of {axis.name} are put together along dim {dim} of what is {layout}"
        if stack is not None:
            self._layouts[stack] = whole
        return None


def _shape_problem(sharding: Sharding, row: Mapping[str, ir.Attribute], value: ir.Value) -> str | None:
    """Whether what a rank has of an argument or a result is no block of the whole; None if it is one."""
    local, whole = read_type(value.type), None
    if "dist.padded" in row:
        whole = tuple(ir.DenseI64ArrayAttr(row["dist.padded"]))
    elif "dist.global_type" in row and (type_ := read_type(ir.TypeAttr(row["dist.global_type"]).value)):
        whole = type_.shape
    if local is None or whole is None:
        return None
    if len(whole) == len(sharding.dims) and sharding.local_shape(whole) == local.shape:
        return None
    return f"is {local} on a rank, which is no block of {list(whole)} under {sharding}"


def _whole_call(spec: OpCall, operands: list[Sharding], results: list[Sharding]) -> OpCall:
    """The call on global shapes of which ``spec`` is a rank's version."""
    layouts = iter(operands)
    args = replace_leaves(
        spec.args, lambda leaf: _whole(leaf, next(layouts)) if isinstance(leaf, TensorType) else leaf
    )
    made = tuple(t and _whole(t, layout) for t, layout in zip(spec.results, results, strict=True))
    return OpCall(spec.target, args, made)


def _whole(type_: TensorType, layout: Sharding) -> TensorType:
    return type_.with_shape(tuple(size * layout.ways(dim) for dim, size in enumerate(type_.shape)))


def _combined(carried: ir.Value, following: ir.Value) -> tuple[str, ir.Value | None]:
    """How the next value of a carried one combines it with a term, and the term; no term if it does not."""
    op = None if isinstance(following.owner, ir.Block) else following.owner.operation
    if op is None or op.name not in _COMBINES or op.operands[0] != carried:
        return "", None
    return _COMBINES[op.name], op.operands[1]


def _start(init: ir.Value) -> float | None:
    """The number that a carried tensor is full of at first; None if it is made otherwise."""
    made = None if isinstance(init.owner, ir.Block) else init.owner.operation
    if made is None or made.name != "torch.aten.full":
        return None
    number = made.operands[1].owner.operation
    return None if "value" not in number.attributes else number.attributes["value"].value
