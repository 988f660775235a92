"""``dist-accumulate``: turns a rank's program for one micro-batch into a loop over all micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch_mlir import ir

from shardc.diagnostics.passes.accumulate import UnevenMicroBatches
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import DEVICE
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh, MeshAxis, find_mesh, read_mesh, write_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.dist.slice import slice_block
from shardc.options.parallelism import MICRO
from shardc.passes.accumulate.buffers import Buffers
from shardc.passes.accumulate.step_parts import SEED_STRIDE, StepParts, read_parts, replace
from shardc.passes.accumulate.torch_accumulate import grow_batch, write_function_type
from shardc.passes.manager.attributes import (
    PER_MICRO_BATCH,
    edge_attributes,
    edge_key,
    i64,
    observed,
    set_edge_attributes,
)
from shardc.passes.manager.base import Pass
from shardc.passes.manager.copy_ops import reads
from shardc.passes.manager.sum_place import sum_is
from shardc.passes.partition.form_loops import form_loops
from shardc.passes.partition.local_call import CallWriter
from shardc.passes.partition.reshard_lower import EDGE, EDGE_KIND

_MOVES = ("all_gather", "slice", "permute", "exchange", "all_to_all", "partial")
_LINEAR = tuple(f"dist.{name}" for name in _MOVES)
_SUMS = ("dist.all_reduce", "dist.reduce_scatter")
_PAD = "torch.aten.constant_pad_nd"


@dataclass(frozen=True)
class DistAccumulate(Pass):
    """Runs the forward and backward of a program of level 3 in a loop over ``micro-batches``.

    Loss and gradients are averaged over micro-batches. Their reductions between devices, and the optimizer,
    run once, after the loop. Inputs get the rows of all micro-batches. Inputs that are split over devices are
    held whole by each device, which selects its rows of every micro-batch. ``whole`` names the inputs that
    all micro-batches share. Running statistics are updated after the loop, from values that the loop keeps
    for each micro-batch. Raises UnevenMicroBatches, BufferFeedsLoss.
    """

    name: ClassVar[str] = "dist-accumulate"
    micro_batches: int = 2
    whole: tuple[str, ...] = ()

    def run(self, module: ir.Module) -> None:
        spatial, old = read_mesh(module), find_mesh(module.operation)
        assert spatial is not None and old is not None, "dist-accumulate comes behind dist-partition"
        mesh = Mesh((*spatial.axes, MeshAxis(MICRO, self.micro_batches, "time")))
        old.erase()
        write_mesh(module, mesh)
        parts = read_parts(module, self.whole)
        with module.context, ir.Location.unknown():
            _Looper(parts, ShardingCodec(module.context, mesh), mesh).run()


class _Looper:
    def __init__(self, parts: StepParts, codec: ShardingCodec, mesh: Mesh) -> None:
        self._parts, self._codec, self._mesh = parts, codec, mesh
        self._axis = mesh.whole(MICRO)
        self._builder = CallBuilder(parts.block)
        self._first = parts.ops[0]
        self._rows = [
            edge_attributes(parts.function, "arg_attrs", i) for i in range(len(parts.block.arguments))
        ]

    def run(self) -> None:
        parts = self._parts
        for argument in parts.batch:
            self._take_rows(argument)
        for seed in parts.seeds:
            self._take_seed(seed)
        self._find_late_sums()
        parts.find_borders()
        buffers = Buffers(parts, self._builder, self._axis, self._codec)
        gathers = self._gathers()
        for value in parts.borders:
            self._average(value)
        _hide_names(parts)
        buffers.write()
        for op in gathers:
            op.attributes["dist.in_loop"] = ir.UnitAttr.get(op.context)
        set_edge_attributes(parts.function, "arg_attrs", self._rows)
        write_function_type(parts)
        parts.function.attributes[PER_MICRO_BATCH] = i64(self._axis.size, parts.function.context)
        form_loops(parts.block, self._codec, self._mesh)

    def _find_late_sums(self) -> None:
        """Find the reductions of loss and gradients between devices, which are linear and so run after the
        loop.
        """
        parts = self._parts
        read = {v for i, v in enumerate(parts.terminator.operands) if i not in parts.loss}
        for op in reversed(parts.early):
            value = op.results[0]
            if value in parts.varying and value not in read and _is_linear(op):
                parts.late.add(value)
            else:
                read.update(reads(op))

    def _gathers(self) -> list[ir.Operation]:
        """Return the gathers of parameters in forward and backward, which run in every micro-batch."""
        parts = self._parts
        keys = {
            v: edge_key(parts.function, "arg_attrs", ir.BlockArgument(v).arg_number)
            for v in parts.block.arguments
        }
        stored: set[ir.Value] = {v for v, (role, _) in keys.items() if role == "param"}
        found: list[ir.Operation] = []
        for op in parts.early:
            read = list(reads(op))
            if len(read) == 1 and read[0] in stored:
                stored.update(op.results)
                if op.name == "dist.all_gather":
                    found.append(op)
        return found

    def _average(self, value: ir.Value) -> None:
        """Average a value over the loop, and let the optimizer read the average."""
        op, lies = value.owner.operation, self._layout(value)
        place = ir.InsertionPoint.after(op)
        write = CallWriter.at(self._builder, op, place)
        term = write.call("aten.mul.Scalar", value, 1.0 / self._axis.size)
        terms = lies.with_partial((*lies.partial, ("sum", self._axis)))
        term.owner.attributes["dist.shardings"] = self._codec.array([terms])
        term.owner.attributes[PER_MICRO_BATCH] = self._codec.axes((self._axis,))
        _move_names(value, term)
        given = {"axes": self._codec.axes((self._axis,)), EDGE_KIND: ir.StringAttr.get("sum", value.context)}
        given["dist.shardings"] = self._codec.array([lies])
        edge = ir.Operation.create(EDGE, [value.type], [term], given, loc=op.location, ip=place)
        self._parts.read_instead(value, edge.result)

    def _layout(self, value: ir.Value) -> Sharding:
        return self._codec.read(value.owner.attributes["dist.shardings"][ir.OpResult(value).result_number])

    def _take_rows(self, argument: ir.Value) -> None:
        """Give an input the rows of all micro-batches, and slice them in each micro-batch."""
        lies = self._codec.read(self._rows[ir.BlockArgument(argument).arg_number]["dist.sharding"])
        self._grow_edge(argument, lies)
        whole = Sharding(((), *lies.dims[1:]), lies.partial)
        readers = [(use.owner.operation, use.operand_number) for use in argument.uses]
        grow_batch(argument, lies.ways(0) * self._axis.size)
        inside = self._slice(argument, (self._axis,), whole)
        inside.owner.attributes[PER_MICRO_BATCH] = self._codec.axes((self._axis,))
        if lies.dims[0]:
            inside = self._slice(inside, lies.dims[0], lies)
        for op, position in readers:
            op.operands[position] = inside
        self._parts.varying.add(inside)

    def _grow_edge(self, argument: ir.Value, lies: Sharding) -> None:
        """Set the type of an input with the rows of all micro-batches, whole. Raises UnevenMicroBatches."""
        row, count, ways = self._rows[ir.BlockArgument(argument).arg_number], self._axis.size, lies.ways(0)
        type_ = read_type(ir.TypeAttr(row["dist.global_type"]).value)
        assert type_ is not None
        rows = type_.shape[0]
        if rows % ways:
            axes = ", ".join(axis.name for axis in lies.dims[0])
            into = f"over the {ways} devices of {axes}"
            raise UnevenMicroBatches(what="a micro-batch", size=rows, into=into, multiple=count * ways)
        context = argument.context
        row["dist.global_type"] = ir.TypeAttr.get(self._builder.type(type_.scaled(0, count)))
        row["dist.sharding"] = self._codec.write(Sharding(((), *lies.dims[1:]), lies.partial))
        if "dist.padded" in row:
            padded = list(ir.DenseI64ArrayAttr(row["dist.padded"]))
            row["dist.padded"] = ir.DenseI64ArrayAttr.get([rows * count, *padded[1:]], context)

    def _slice(self, value: ir.Value, axes: tuple[Axis, ...], lies: Sharding) -> ir.Value:
        first = self._parts.ops[0]
        made = slice_block(value, 0, axes, self._codec, loc=first.location, ip=ir.InsertionPoint(first))
        made.owner.attributes["dist.phase"] = ir.StringAttr.get("forward", value.context)
        made.owner.attributes["dist.shardings"] = self._codec.array([lies])
        return made

    def _take_seed(self, seed: ir.Value) -> None:
        """Give each micro-batch a seed of its own."""
        readers = [op for op in self._parts.early if seed in set(reads(op))]
        if not readers:
            return
        first, forward = self._parts.ops[0], ir.StringAttr.get("forward", seed.context)
        place = ir.InsertionPoint(first)
        write = CallWriter(self._builder, first.location, place, {"dist.phase": forward})
        count = self._axis.size
        ends = (0, count * SEED_STRIDE, SEED_STRIDE)
        steps = write.call("aten.arange.start_step", *ends, torch.int64, None, DEVICE, False)
        seeds = write.call("aten.add.Tensor", steps, seed, 1)
        own = slice_block(seeds, 0, (self._axis,), self._codec, loc=first.location, ip=place)
        own = write.call("aten.view", own, ())
        for op in readers:
            replace(op, seed, own)
        self._parts.varying.add(own)


def _is_linear(op: ir.Operation) -> bool:
    is_sum = op.name in _SUMS and op.attributes["reduction"].value == "sum"
    return is_sum or op.name in _LINEAR or _pads_with_zeros(op) or sum_is("before", op)


def _pads_with_zeros(op: ir.Operation) -> bool:
    if op.name != _PAD:
        return False
    made = op.operands[2].owner
    return "value" in made.attributes and made.attributes["value"].value == 0


def _move_names(value: ir.Value, mean: ir.Value) -> None:
    """Move the names of a gradient to its mean, which users observe."""
    mine: list[str] = []
    while not mine and isinstance(value, ir.OpResult):
        mine = [name for name, number in observed(value.owner) if number == value.result_number]
        if not value.owner.name.startswith("dist."):
            break
        value = value.owner.operands[0]
    if mine:
        mean.owner.attributes["dist.name"] = ir.StringAttr.get(",".join(mine), mean.context)


def _hide_names(parts: StepParts) -> None:
    """Rename a micro-batch's own gradients, so that users do not observe them."""
    for op in parts.early:
        names = observed(op)
        if names and op.results[0] in parts.varying:
            text = ",".join(f"own-{name}#{number}" for name, number in names)
            op.attributes["dist.name"] = ir.StringAttr.get(text, op.context)
