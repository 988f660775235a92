"""Schedule of a block: when its values are computed, waited for and freed. Positions count steps from 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.backends.torch.batch import batch_kernels
from shardc.backends.torch.kernels import KERNEL
from shardc.backends.torch.memory.prefetch import prefetch
from shardc.backends.torch.memory.receives import PIPE, post_receives
from shardc.backends.torch.step import Step, size_bytes
from shardc.cost.memory import IN_FLIGHT_BYTES
from shardc.dialects.aten.call import CallReader, is_constant
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.regions.loop_values import TUPLES, loop_values
from shardc.dialects.dist.tuples import packed, unpacked
from shardc.dialects.kern.extern import ExternOp, extern_call
from shardc.dialects.kern.kernel import CHECKS, kernel_operands, kernel_results


@dataclass
class Schedule:
    """Steps of a block that its results need, and where their values are first and last used.

    ``first`` and ``last``: positions of a value's first and last user. ``end``: the position after all steps.
    ``owned``: arguments that the block frees.
    """

    steps: list[Step]
    made: dict[ir.Value, int] = field(default_factory=dict)
    first: dict[ir.Value, int] = field(default_factory=dict)
    last: dict[ir.Value, int] = field(default_factory=dict)
    owned: Sequence[ir.Value] = ()

    @property
    def end(self) -> int:
        return len(self.steps)

    def need(self, value: ir.Value, position: int) -> None:
        """Record another use."""
        self.first[value] = min(self.first.get(value, position), position)
        self.last[value] = max(self.last.get(value, position), position)

    def need_at_end(self, values: Iterable[ir.Value]) -> None:
        """Record uses after all steps."""
        for value in values:
            self.need(value, self.end)

    def size_bytes(self, value: ir.Value) -> float:
        """Return the size of a value of this block or of an argument, as in :func:`size_bytes`."""
        step = self.steps[self.made[value]] if value in self.made else None
        if step is None or step.call is None:
            return size_bytes(read_type(value.type))
        results = step.call.spec.results  # reading the types from the IR again would be slow
        return size_bytes(results[step.results.index(value) if len(results) > 1 else 0])

    def waits(self) -> dict[int, list[ir.Value]]:
        """Return position -> results of collectives to wait for just before it.

        That is where they are first needed, or earlier if collectives in flight exceed ``IN_FLIGHT_BYTES``.
        Without that limit, all of ZeRO's whole gradients would be alive at the end of backward.
        """
        at: dict[ir.Value, int] = {}
        pending: list[tuple[int, ir.Value, float]] = []
        for position, step in enumerate(self.steps):
            if not step.starts:
                continue
            pending = [p for p in pending if p[0] > position]
            while sum(size for _, _, size in pending) > IN_FLIGHT_BYTES:
                at[pending.pop(0)[1]] = position
            result = step.results[0]
            at[result] = self.first[result]
            pending.append((at[result], result, sum(map(self.size_bytes, step.operands))))
        found: dict[int, list[ir.Value]] = {}
        for value, position in at.items():
            found.setdefault(position, []).append(value)
        return found

    def dying(self) -> dict[int, list[ir.Value]]:
        """Return position -> values of this block, and arguments that it owns, with their last use there."""
        found: dict[int, list[ir.Value]] = {}
        for value in (*self.made, *self.owned):
            if value in self.last:
                found.setdefault(self.last[value], []).append(value)
        return found


def schedule_block(
    block: ir.Block,
    reader: CallReader,
    wanted: Iterable[ir.Value],
    ordered: Callable[[list[Step]], list[Step]] = list,
) -> Schedule:
    """Return the schedule of a block for the ``wanted`` values, without steps that they do not need.

    Kernels that check indices are always needed: their error replaces wrong values.
    The caller must record where it needs these values. ``ordered``: reorders the steps.
    """
    needed = set(wanted)
    steps: list[Step] = []
    for step in reversed(_read(block, reader)):
        if needed.intersection(step.results) or step.name in PIPE or CHECKS in step.op.attributes:
            needed.update(step.operands)
            steps.append(step)
    schedule = Schedule(post_receives(ordered(batch_kernels(prefetch(steps[::-1])))))
    for position, step in enumerate(schedule.steps):
        for value in step.operands:
            schedule.need(value, position)
        for value in step.results:
            schedule.made[value] = position
    return schedule


def _read(block: ir.Block, reader: CallReader) -> list[Step]:
    """Return every op of a block except constants and the terminator."""
    steps = []
    for view in block.operations:
        op = view.operation
        name = op.name
        if name.startswith("torch."):
            if name not in TUPLES and not is_constant(op):
                call = reader.read(op)
                steps.append(Step(op, name, call, call.operands, call.results))
        elif name == "dist.loop":
            loop = loop_values(op)
            operands, results = [*loop.inits, *loop.captures], [*loop.carried, *loop.stacked]
            steps.append(Step(op, name, None, operands, results, loop))
        elif name in PIPE:
            steps.append(Step(op, name, None, packed(list(op.operands)), unpacked(list(op.results))))
        elif name == KERNEL:
            steps.append(Step(op, name, None, kernel_operands(op), kernel_results(op)))
        elif name == ExternOp.OPERATION_NAME:
            call = extern_call(op)
            steps.append(Step(op, name, call, call.operands, kernel_results(op)))
        elif name.startswith("dist.") and name != "dist.yield":
            steps.append(Step(op, name, None, list(op.operands), list(op.results)))
    return steps
