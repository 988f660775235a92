"""``torch-accumulate``: turns the step of one micro-batch into an unrolled loop that accumulates
gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.passes.accumulate.copies import Copies, erase
from shardc.passes.accumulate.step_parts import SEED_STRIDE, StepParts, read_parts
from shardc.passes.manager.attributes import PER_MICRO_BATCH, attributes_of, i64, observed
from shardc.passes.manager.base import Pass
from shardc.passes.partition.local_call import CallWriter, type_of


@dataclass(frozen=True)
class TorchAccumulate(Pass):
    """Turns a single-device step of one micro-batch into one of ``micro-batches``.

    The new step runs forward and backward on each micro-batch, and the optimizer once. Loss and gradients are
    averaged over micro-batches, buffers are updated by one micro-batch after another, and random numbers
    differ between them. ``whole`` names the inputs that all micro-batches share; the others are split along
    dim 0. Raises NoGradient if the optimizer reads other values of a micro-batch.
    """

    name: ClassVar[str] = "torch-accumulate"
    micro_batches: int = 2
    whole: tuple[str, ...] = ()

    def run(self, module: ir.Module) -> None:
        parts = read_parts(module, self.whole)
        parts.find_borders()
        parts.check_gradients()
        with module.context, ir.Location.unknown():
            _Unroller(parts, self.micro_batches).run()


class _Unroller:
    def __init__(self, parts: StepParts, count: int) -> None:
        self._parts, self._count = parts, count
        self._builder = CallBuilder(parts.block)
        own = parts.varying | parts.state
        self._own = [op for op in parts.early if op.results[0] in own]
        """Ops that run once for each micro-batch."""

    def run(self) -> None:
        parts, count = self._parts, self._count
        rows = {argument: type_of(argument).shape[0] for argument in parts.batch}
        for argument in parts.batch:
            grow_batch(argument, count)
        buffers = {argument: argument for argument in parts.buffers}
        sums: dict[ir.Value, ir.Value] = {}
        for number in range(count):
            copies = self._copies(number, rows, buffers)
            for op in self._own:
                copies.copy(op)
            for value in parts.borders:
                sums[value] = self._add(sums.get(value), value, copies.values[value])
            buffers = {old: copies.operand(new) for old, new in parts.buffers.items()}
        self._finish(sums, buffers)

    def _copies(self, number: int, rows: dict[ir.Value, int], buffers: dict[ir.Value, ir.Value]) -> Copies:
        values = dict(buffers)
        end = self._parts.terminator
        write = CallWriter(self._builder, end.location, ir.InsertionPoint(end), self._forward()).call
        for argument, b in rows.items():
            values[argument] = write("aten.slice.Tensor", argument, 0, number * b, (number + 1) * b, 1)
        for seed in self._parts.seeds if number else ():
            values[seed] = write("aten.add.Scalar", seed, number * SEED_STRIDE, 1)
        return Copies(end, values)

    def _forward(self) -> dict[str, ir.Attribute]:
        return {"dist.phase": ir.StringAttr.get("forward", self._parts.block.owner.context)}

    def _add(self, so_far: ir.Value | None, value: ir.Value, term: ir.Value) -> ir.Value:
        """Return the running mean, in at least f32, with a micro-batch's part added."""
        wide = torch.promote_types(type_of(value).dtype, torch.float32)
        write = self._writer(value.owner.operation)
        part = write.call("aten.mul.Scalar", write.cast(term, wide), 1.0 / self._count)
        return part if so_far is None else write.call("aten.add.Tensor", so_far, part, 1)

    def _writer(self, op: ir.Operation) -> CallWriter:
        place = ir.InsertionPoint(self._parts.terminator)
        return CallWriter(self._builder, op.location, place, attributes_of(op, "dist.phase"))

    def _finish(self, sums: dict[ir.Value, ir.Value], buffers: dict[ir.Value, ir.Value]) -> None:
        """Let the optimizer read the means, and let the step return the last buffers."""
        parts, end = self._parts, self._parts.terminator
        late = [op for op in parts.ops if op.results[0] in parts.late]
        means = Copies(end, {})
        for value, total in sums.items():
            op = value.owner.operation
            mean = self._writer(op).cast(total, type_of(value).dtype)
            _observe(value, mean)
            means.values[value] = mean
        names = {op.results[0]: attributes_of(op, "dist.name") for op in late}
        for op in late:
            made = means.copy(op)
            for name, attribute in names[op.results[0]].items():
                made.attributes[name] = attribute
        for position, value in enumerate(list(end.operands)):
            buffer = parts.returned.get(position)
            end.operands[position] = means.operand(value) if buffer is None else buffers[buffer]
        mine = {op.results[0] for op in self._own} | parts.late
        for op in reversed(parts.ops):
            if op.results[0] in mine:
                erase(op)
        write_function_type(parts)
        parts.function.attributes[PER_MICRO_BATCH] = i64(self._count, parts.function.context)


def _observe(value: ir.Value, mean: ir.Value) -> None:
    """Give the names of a value to its mean."""
    op = value.owner.operation
    names = [name for name, number in observed(op) if number == ir.OpResult(value).result_number]
    if names:
        mean.owner.attributes["dist.name"] = ir.StringAttr.get(",".join(names), mean.context)


def grow_batch(argument: ir.Value, count: int) -> None:
    """Give an argument of one micro-batch the rows of ``count`` micro-batches."""
    type_ = type_of(argument).scaled(0, count)
    argument.set_type(ir.Type.parse(str(type_), argument.context))


def write_function_type(parts: StepParts) -> None:
    """Update the function's type after changes of its arguments' types."""
    context = parts.function.context
    returned = [value.type for value in parts.terminator.operands]
    type_ = ir.FunctionType.get([a.type for a in parts.block.arguments], returned, context)
    parts.function.attributes["function_type"] = ir.TypeAttr.get(type_, context)
