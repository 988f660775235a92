"""Parts of a flat step: ops of each micro-batch, ops that run once, and the values passed between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.diagnostics.passes.accumulate import NoGradient, NotMeanOfMicroBatches
from shardc.dialects.aten.call import is_constant
from shardc.dialects.aten.types import read_type
from shardc.dialects.location import source_line
from shardc.passes.manager.attributes import edge_key, observed, phase_of
from shardc.passes.manager.copy_ops import reads
from shardc.passes.manager.program import find_function
from shardc.passes.partition.operands import set_operand

SEED_STRIDE = 1 << 40
"""Micro-batch i uses the step's seed plus i times this number. Seeds of consecutive steps differ by one."""


@dataclass
class StepParts:
    """A flat step that was captured on one micro-batch.

    ``late`` are the first results of the ops that run once, after all micro-batches: clipping and the
    optimizer. Among the other values, ``varying`` differ between micro-batches, because they depend on the
    ``batch`` or on random numbers, and ``state`` depend on ``buffers`` that the forward writes (argument ->
    its new value). ``returned`` maps a result's number to its buffer. ``borders`` are the values that leave a
    micro-batch: the loss and gradients.
    """

    function: ir.Operation
    block: ir.Block
    ops: list[ir.Operation]
    batch: list[ir.Value]
    seeds: list[ir.Value]
    buffers: dict[ir.Value, ir.Value]
    returned: dict[int, ir.Value]
    loss: set[int]
    late: set[ir.Value] = field(default_factory=set)
    varying: set[ir.Value] = field(default_factory=set)
    state: set[ir.Value] = field(default_factory=set)
    borders: list[ir.Value] = field(default_factory=list)

    @property
    def terminator(self) -> ir.Operation:
        return list(self.block.operations)[-1].operation

    @property
    def early(self) -> list[ir.Operation]:
        """The ops of forward and backward, in order."""
        return [op for op in self.ops if op.results[0] not in self.late]

    def closure(self, values: Iterable[ir.Value]) -> set[ir.Value]:
        """Return all results of the early ops on which ``values`` depend."""
        found: set[ir.Value] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if not isinstance(value, ir.OpResult) or value in found or value in self.late:
                continue
            found.update(value.owner.results)
            todo.extend(reads(value.owner.operation))
        return found

    def find_borders(self) -> None:
        """Find the values that leave a micro-batch. Raises NotMeanOfMicroBatches."""
        read = [v for op in self.ops if op.results[0] in self.late for v in reads(op)]
        read += [self.terminator.operands[position] for position in sorted(self.loss)]
        found = dict.fromkeys(v for v in read if v in self.varying and v not in self.late)
        for value in found:
            if not isinstance(value, ir.OpResult):
                raise NoGradient(op="the batch", where=source_line(self.function.location))
            type_ = read_type(value.type)
            if type_ is None or not (type_.dtype.is_floating_point or type_.dtype.is_complex):
                raise NotMeanOfMicroBatches(what=str(type_), where=source_line(value.owner.location))
        self.borders = list(found)

    def read_instead(self, value: ir.Value, new: ir.Value) -> None:
        """Let late ops, and the step's loss, read ``new`` instead of ``value``."""
        for op in self.ops:
            if op.results[0] in self.late:
                replace(op, value, new)
        for position in self.loss:
            if self.terminator.operands[position] == value:
                self.terminator.operands[position] = new

    def check_gradients(self) -> None:
        """Check that only the loss and parameters' gradients leave a micro-batch. Raises NoGradient."""
        losses = {self.terminator.operands[position] for position in self.loss}
        for value in self.borders:
            op = value.owner.operation
            names = [name for name, number in observed(op) if number == ir.OpResult(value).result_number]
            if value not in losses and not any(name.startswith("grad:") for name in names):
                raise NoGradient(op=op.name.removeprefix("torch."), where=source_line(op.location))


def read_parts(module: ir.Module, whole: Collection[str]) -> StepParts:
    """Return the parts of the step of ``module``, without its borders.

    ``whole`` names the inputs that all micro-batches share; all others are split along dim 0.
    """
    function = find_function(module)
    assert function is not None, "a step was captured"
    block = function.regions[0].blocks[0]
    *ops, terminator = [o.operation for o in block.operations]
    keys = {v: edge_key(function, "arg_attrs", i) for i, v in enumerate(block.arguments)}
    made = {edge_key(function, "res_attrs", i): v for i, v in enumerate(terminator.operands)}
    loss = {i for i in range(len(terminator.operands)) if edge_key(function, "res_attrs", i)[0] == "loss"}
    parts = StepParts(
        function,
        block,
        [op for op in ops if not is_constant(op)],
        [v for v, (role, name) in keys.items() if role == "input" and name not in whole],
        [v for v, (role, _) in keys.items() if role == "seed"],
        {v: made[key] for v, key in keys.items() if key[0] == "buffer" and made.get(key, v) != v},
        {},
        loss,
    )
    argument = {keys[v]: v for v in parts.buffers}
    parts.returned = {i: argument[key] for i, key in enumerate(made) if key in argument}
    _find_late(parts)
    parts.varying = _depend(parts, [*parts.batch, *parts.seeds])
    parts.state = _depend(parts, parts.buffers)
    return parts


def replace(op: ir.Operation, value: ir.Value, new: ir.Value) -> None:
    """Replace the tensor ``value`` by ``new`` in an op's operands, also in lists."""
    tensors = [v for v in reads(op) if read_type(v.type) is not None]
    for position, read in enumerate(tensors):
        if read == value:
            set_operand(op, position, new)


def _find_late(parts: StepParts) -> None:
    phases = _phases(parts)
    for op in parts.ops:
        if phases[op.results[0]] == "optimizer" or any(v in parts.late for v in reads(op)):
            parts.late.update(op.results)


def _phases(parts: StepParts) -> dict[ir.Value, str]:
    """Return the phase of each op, by first result; an op without a phase has its reader's."""
    found: dict[ir.Value, str] = {}
    wanted: dict[ir.Value, str] = {}
    for op in reversed(parts.ops):
        phase = found[op.results[0]] = phase_of(op) or next(
            (wanted[r] for r in op.results if r in wanted), ""
        )
        for value in reads(op):
            if wanted.get(value, "optimizer") == "optimizer":
                wanted[value] = phase
    return found


def _depend(parts: StepParts, sources: Iterable[ir.Value]) -> set[ir.Value]:
    """Return ``sources`` and the results of early ops that depend on them."""
    found = set(sources)
    for op in parts.early:
        if any(v in found for v in reads(op)):
            found.update(op.results)
    return found
