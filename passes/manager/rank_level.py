"""Verifier of level 3: collectives and calls must lead from the layouts of operands to those of results.

A value's layout is in ``dist.shardings`` of the op that produces it, or follows from its operand's. A
collective must change its operand's layout to its result's, a call must follow its rule, and a loop must
combine terms over its axis. Ops that a rule's lowering adds have no layout; the stated layout of an op that
reads them is not checked.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir

from shardc.diagnostics.dialects.levels import LevelBroken
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
from shardc.dialects.dist.axis import shared_axis
from shardc.dialects.dist.check import check_sharding
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.regions.loop_values import TUPLES, loop_values
from shardc.dialects.dist.reshard_steps import Permute, Step
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.dist.time_part import exchanged, space_part
from shardc.dialects.location import source_line
from shardc.dialects.rules.rule import ImpossibleCall, Rule, find_rule
from shardc.passes.manager.attributes import PER_MICRO_BATCH, edge_attributes
from shardc.passes.manager.layout_steps import STEPS, axes_of
from shardc.passes.manager.loop_level import combined_term, stacked
from shardc.passes.manager.packed_level import PACKED, packed_problem
from shardc.passes.manager.sharded_level import call_problem, edge_problem

_LEFT_OVER = ("dist.reshard", "dist.constraint", "builtin.unrealized_conversion_cast")
_SAME = ("torch.aten._to_copy", "dist.broadcast")

_SHAPES = "view _unsafe_view reshape expand full ones zeros new_full new_ones new_zeros slice.Tensor"
_PRODUCTS = "addmm baddbmm addmv linear embedding embedding_dense_backward"
_SAME_CALL = frozenset(f"aten.{name}" for name in f"{_SHAPES} {_PRODUCTS}".split())
"""Operators that are checked by their own rule if the layouts of all operands are known."""


class RankLevel:
    """Checker that tracks the layouts of a rank's program."""

    def __init__(self, function: ir.Operation, mesh: Mesh) -> None:
        self._function, self._mesh = function, mesh
        self._codec = ShardingCodec(function.context, mesh)
        self._reader = CallReader()
        self._layouts: dict[ir.Value, Sharding] = {}
        self._read: dict[ir.Attribute, list[Sharding]] = {}
        self._right: set[object] = set()  # layers repeat the same calls

    def check(self) -> None:
        """Check the program. Raises LevelBroken at the first op that breaks the level."""
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
        """Return the layout of an argument or a result, which must divide the global type into the rank's
        type.
        """
        row = edge_attributes(self._function, which, position)
        if "dist.sharding" not in row:
            raise LevelBroken(level=3, problem=f"{what} {position} has no dist.sharding")
        sharding = self._codec.read(row["dist.sharding"]).normal()
        problem = edge_problem(sharding, self._mesh) or _shape_problem(sharding, row, value)
        if problem:
            raise LevelBroken(level=3, problem=f"{what} {position} {problem}")
        return sharding

    def _check_block(self, block: ir.Block, loops: tuple[str, ...]) -> None:
        """Check a block; ``loops`` are the axes of the enclosing loops."""
        for op in [view.operation for view in block.operations][:-1]:
            if problem := self._problem(op, loops):
                raise LevelBroken(level=3, problem=problem, where=source_line(op.location))

    def _problem(self, op: ir.Operation, loops: tuple[str, ...]) -> str | None:
        if op.name in _LEFT_OVER:
            return f"{op.name} is left over"
        if problem := self._shares_problem(op, loops):
            return problem
        if op.name == "dist.loop":
            return self._loop_problem(op, loops)
        if is_constant(op) or op.name in TUPLES:
            return None
        said = self._said(op)
        if PER_MICRO_BATCH in op.attributes:
            return self._micro_batch_problem(op, said, loops)
        if op.name in STEPS:
            return self._step_problem(op, said, loops)
        if said is not None:
            self._layouts.update(zip(op.results, said, strict=True))
            return self._call_problem(op, said) if op.name.startswith("torch.") else None
        if op.name in _SAME and op.operands[0] in self._layouts:
            self._layouts[op.results[0]] = self._layouts[op.operands[0]]
        return None

    def _shares_problem(self, op: ir.Operation, loops: tuple[str, ...]) -> str | None:
        """Return the problem of an op along an axis whose ranks run different iterations of an enclosing
        loop.
        """
        if not self._mesh.shares or not op.name.startswith("dist.") or "axes" not in op.attributes:
            return None
        apart = [shared_axis(name) for name in loops if name in self._mesh.shares]
        if all(axis.name not in apart for axis in axes_of(op, self._codec)):
            return None
        return f"{op.name} is along an axis whose ranks run iterations of their own, in the loop over these"

    def _said(self, op: ir.Operation) -> list[Sharding] | None:
        """Return the layouts in an op's ``dist.shardings``. Raises LevelBroken for an illegal one."""
        array = op.attributes.get("dist.shardings")
        if array is not None and array not in self._read:
            found = self._read[array] = [self._codec.read(attribute).normal() for attribute in array]
            for sharding in found:
                if wrong := check_sharding(sharding, len(sharding.dims), self._mesh):
                    problem = f"a result of {target_name(op)} is {sharding}: {wrong}"
                    raise LevelBroken(level=3, problem=problem, where=source_line(op.location))
        return None if array is None else self._read[array]

    def _micro_batch_problem(
        self, op: ir.Operation, said: list[Sharding] | None, loops: tuple[str, ...]
    ) -> str | None:
        """Return the problem of the rows that a micro-batch reads, or of its part of a mean over all of them.

        An iteration runs a separate program, whose values are not split over the loop's axis.
        """
        (axis,) = self._codec.read_axes(op.attributes[PER_MICRO_BATCH])
        source = self._layouts.get(op.operands[0])
        if said is None or source is None or axis.name not in loops:
            return f"{op.name} belongs to a micro-batch, but does not say to which"
        is_slice = op.name == "dist.slice" and axes_of(op, self._codec) == (axis,)
        terms = source.with_partial((*source.partial, ("sum", axis))).normal()
        self._layouts[op.results[0]] = said[0]
        if said[0] == (source if is_slice else terms) and (is_slice or op.name == "torch.aten.mul.Scalar"):
            return None
        return f"{op.name} makes {said[0]} of {source} in a micro-batch"

    def _step_problem(
        self, op: ir.Operation, said: list[Sharding] | None, loops: tuple[str, ...]
    ) -> str | None:
        """Return the problem of a collective, slice or similar op, given the layouts of operand and
        result.
        """
        source = self._layouts.get(op.operands[0])
        if source is None:
            if said is not None:
                self._layouts[op.results[0]] = said[0]
            return packed_problem(op, self._codec, self._layouts) if op.name in PACKED else None
        try:
            made = self._applied(STEPS[op.name](op, self._codec), source)
        except ValueError as problem:
            return f"{op.name} does not apply to {source}: {problem}"
        self._layouts[op.results[0]] = made
        if said is not None and said[0] != made:
            return f"{op.name} makes {made} of {source}, but its result is {said[0]}"
        if problem := check_sharding(made, len(made.dims), self._mesh):
            return f"{op.name} makes {made} of {source}: {problem}"
        if any(self._mesh.is_time(axis) and axis.name not in loops for axis in axes_of(op, self._codec)):
            return f"{op.name} is over a time axis, and in no loop over it"
        return None

    def _applied(self, step: Step, source: Sharding) -> Sharding:
        """Return the layout after a step. Raises ValueError if the step does not apply."""
        if not isinstance(step, Permute):
            return step.apply(source).normal()
        space = space_part(source, self._mesh)
        return exchanged(step.apply(space), source, self._mesh).normal()

    def _call_problem(self, op: ir.Operation, said: list[Sharding]) -> str | None:
        """Return the problem of a call whose operands all have known layouts."""
        call = self._reader.read(op)
        leaves_ = [leaf for leaf in leaves(call.spec.args) if isinstance(leaf, TensorType | IntValue)]
        values = [v for v, leaf in zip(call.operands, leaves_, strict=True) if isinstance(leaf, TensorType)]
        operands = [self._layouts[v] for v in values if v in self._layouts]
        key = (call.spec, tuple(operands), tuple(said))
        if len(operands) != len(values) or key in self._right:
            return None
        whole = _whole_call(call.spec, operands, said)
        try:
            rule, local = find_rule(whole), find_rule(call.spec)
        except ImpossibleCall as error:
            return f"{whole.target} cannot be such a call: {error}"
        if rule is not None and _is_misfit(whole, rule, local):
            layouts = ", ".join(map(str, (*operands, *said)))
            return f"{whole.target} reads and makes blocks of tensors whose sizes do not fit: {layouts}"
        is_same = rule is not None and (rule.lower is None or whole.target in _SAME_CALL)
        found = call_problem(rule, operands, said) if rule is not None and is_same else None
        if found is None:
            self._right.add(key)
        return found and f"{found[0]} of {whole.target} {found[1]}"

    def _loop_problem(self, op: ir.Operation, loops: tuple[str, ...]) -> str | None:
        (axis,) = self._codec.read_axes(ir.ArrayAttr.get([op.attributes["axis"]], op.context))
        body, values = op.regions[0].blocks[0], loop_values(op)
        inside, sharers = list(body.arguments)[len(values.inits) :], self._mesh.sharers(axis)
        for argument, value in zip(inside, values.captures, strict=True):
            layout = self._layouts.get(value)
            # A rank reads, of another such loop's stack, only the iterations that it ran itself.
            if layout is not None and all(term != sharers for _, term in layout.partial):
                self._layouts[argument] = layout
        self._check_block(body, (*loops, axis.name))
        for n, following in enumerate(values.following):
            term = combined_term(body.arguments[n], values.inits[n], following, axis)
            if isinstance(term, str):
                return term
            total = self._layouts.get(term.value) and term.total(self._layouts[term.value], axis, sharers)
            if isinstance(total, str):
                return total
            if total is not None and values.carried:
                self._layouts[values.carried[n]] = total
        for n, (row, dim) in enumerate(zip(values.rows, op.attributes["stack_dims"], strict=True)):
            layout, dim = self._layouts.get(row), ir.IntegerAttr(dim).value
            is_inner = bool(values.stacked) and _is_of_loops(values.stacked[n], op)
            stack = layout and stacked(layout, dim, axis, sharers, is_inner)
            if isinstance(stack, str):
                return stack
            if stack is not None and values.stacked:
                self._layouts[values.stacked[n]] = stack
        return None


def _users(op: ir.Operation) -> list[ir.Operation]:
    return [use.owner.operation for result in op.results for use in result.uses]


def _is_of_loops(stack: ir.Value, loop: ir.Operation) -> bool:
    """Return whether only later loops over the same axis read a stack."""
    owners = [use.owner.operation for use in stack.uses]
    owners = [o for each in owners for o in (_users(each) if each.name in TUPLES else [each])]
    return all(o.name == loop.name and o.attributes["axis"] == loop.attributes["axis"] for o in owners)


def _shape_problem(sharding: Sharding, row: Mapping[str, ir.Attribute], value: ir.Value) -> str | None:
    """Return the problem if an argument's or result's local type is not a block of the global type."""
    local, whole = read_type(value.type), None
    if "dist.padded" in row:
        whole = tuple(ir.DenseI64ArrayAttr(row["dist.padded"]))
    elif "dist.global_type" in row and (type_ := read_type(ir.TypeAttr(row["dist.global_type"]).value)):
        whole = type_.shape
    if local is None or whole is None:
        return None
    if len(whole) == len(sharding.dims) and sharding.local_shape(whole) == local.shape:
        return None
    return f"is {local} on a rank, which is not a block of {list(whole)} under {sharding}"


def _whole_call(spec: OpCall, operands: list[Sharding], results: list[Sharding]) -> OpCall:
    """Return the call on global shapes whose local version is ``spec``."""
    layouts = iter(operands)
    args = replace_leaves(
        spec.args, lambda leaf: _whole(leaf, next(layouts)) if isinstance(leaf, TensorType) else leaf
    )
    made = tuple(t and _whole(t, layout) for t, layout in zip(spec.results, results, strict=True))
    return OpCall(spec.target, args, made)


def _is_misfit(whole: OpCall, rule: Rule, local: Rule | None) -> bool:
    """Return whether dims that share a factor locally do not share it globally, because layouts split them
    differently.
    """
    if local is None:
        return False
    pairs = zip(rule.operands + rule.results, local.operands + local.results, strict=True)
    return any(
        not dim and of_rank and size > 1
        for (dims, own), type_ in zip(pairs, (*whole.tensors, *whole.results), strict=True)
        if type_ is not None
        for dim, of_rank, size in zip(dims, own, type_.shape, strict=True)
    )


def _whole(type_: TensorType, layout: Sharding) -> TensorType:
    return type_.with_shape(tuple(size * layout.ways(dim) for dim, size in enumerate(type_.shape)))
