"""Writer of the lines of one block: the step itself, or a loop's body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch_mlir import ir

from shardc.backends.torch.block import Block, Program
from shardc.backends.torch.kernels import KERNEL
from shardc.backends.torch.loop import write_loop
from shardc.backends.torch.memory.aliases import Aliases
from shardc.backends.torch.memory.overwrite import Overwrites
from shardc.backends.torch.memory.schedule import Schedule
from shardc.backends.torch.memory.written import owns_memory, write_in_place, writes_a_part
from shardc.backends.torch.messages import WRITERS
from shardc.backends.torch.step import Step
from shardc.dialects.aten.python_numbers import is_python_number
from shardc.dialects.aten.types import Order
from shardc.dialects.kern.kernel import in_place
from shardc.passes.manager.attributes import phase_of
from shardc.runtime.first_run import type_text

Store = tuple[ir.Value, ir.Value]
"""State argument, and its new value."""
PENDING_STORES = 8
"""Maximum number of new state tensors in flight, because each has its old and its new memory."""


class Body(Block):
    """Writer of the steps of one block.

    ``stores``: (state argument, new value) pairs that the block stores. ``writes``: such pairs that the
    caller stores. ``returned``: values that are returned to others. ``overwritten``: new values that kernels
    have already written to the argument's memory, if that was contiguous.
    """

    def __init__(
        self,
        program: Program,
        schedule: Schedule,
        aliases: Aliases,
        indent: str,
        stores: Sequence[Store] = (),
        writes: Sequence[Store] = (),
        returned: Sequence[ir.Value] = (),
    ) -> None:
        self._stores = _place_stores(schedule, list(stores))
        super().__init__(program, schedule, aliases, indent)
        self._waits = schedule.waits()
        self.after: dict[int, list[tuple[ir.Value, Callable[[str], list[str]]]]] = {}
        """Position -> values, each with a function from its name to lines to insert there."""
        self.overwritten: set[ir.Value] = set()
        self._overwrites = Overwrites(
            schedule, self._whole_aliases(), {new: old for old, new in (*stores, *writes)}, returned
        )

    def write(self) -> None:
        """Write every step with its waits, stores and frees."""
        for position, step in enumerate(self.schedule.steps):
            self.position = position
            self._write_waits(position)
            self._write_place(step.op)
            if step.loop is not None:
                write_loop(self, step.op, step.loop, position, self._write_inner)
            elif step.name in WRITERS:
                WRITERS[step.name](self, step)
            else:
                self._write_step(step, position)
            self._write_stores(position)
            self.free(self.dying.get(position, []))
            self._write_after(position)
        self._write_waits(self.schedule.end)
        self._write_stores(self.schedule.end)
        self._write_after(self.schedule.end)

    def _write_step(self, step: Step, position: int) -> None:
        program = self.program
        operands = [self.name(v) for v in step.operands]
        if step.call is not None and self._may_write(step, position):
            self.line(write_in_place(program.functions, step.call.spec, operands))
            self.aliases.join(step.results[0], step.operands[0])
            self.overwritten.add(step.results[0])
            self.line(f"{self._targets(step)} = {operands[0]}")
            return
        if step.call is not None:
            text = program.functions.call(step.call.spec, operands)
            self.aliases.add(step)
        elif step.name == KERNEL:
            text = self._kernel_call(step, position)
        else:
            reuse = step.name == "dist.all_reduce" and self._may_reuse(step.operands[0], position)
            text = program.dist.write(step.op, operands, reuse)
            self.aliases.add(step, reused=reuse, alone=step.starts and self._is_alone(step))
        targets = [self._targets(member) for member in step.members or (step,)]
        names = ", ".join(f"({each})" for each in targets) if step.members else targets[0]
        if step.starts and self.schedule.first[step.results[0]] == position + 1:
            text += ".wait()"
            self._waits[position + 1].remove(step.results[0])
        self.line(f"{names} = {text}{self._types(step)}")
        for value, dtype in _rounded(step).items():
            if value in self.schedule.first:
                self.line(f"{self.name(value)} = {self.name(value)}.to({dtype})")
        if any(self._is_worth_freeing(v) for v in step.results if v not in self.schedule.first):
            self.line("del _")

    def _types(self, step: Step) -> str:
        """Return a comment with the types of a call's used results, for ``runtime/first_run.py``."""
        if step.call is None or is_python_number(step.call.spec.target):
            return ""
        texts, rounded = [], _rounded(step)
        for value, type_ in zip(step.results, step.call.spec.results, strict=True):
            if type_ is None or value in rounded or value not in self.schedule.first:
                texts.append("None")
                continue
            strides = self.program.strides.get(value, Order(()))
            known = None if isinstance(strides, Order) else strides or _contiguous(type_.shape)
            texts.append(type_text(type_.shape, type_.dtype, known))
        return f"  # {', '.join(texts)}" if any(text != "None" for text in texts) else ""

    def _kernel_call(self, step: Step, position: int) -> str:
        """Return a kernel's call. Operands that must not be overwritten by a result are copied first."""
        texts = []
        for member in step.members or (step,):
            operands = [self.name(v) for v in member.operands]
            for number, at in in_place(member.op).items():
                result, operand = member.results[number], member.operands[at]
                if self._overwrites.allows(step, result, operand, position):
                    self.aliases.join(result, operand)
                    self.overwritten.add(result)
                else:
                    operands[at] += ".clone()"
            texts.append(operands)
        if step.members:
            return self.program.kernels.batch([member.op for member in step.members], texts)
        return self.program.kernels.call(step.op, texts[0])

    def _may_write(self, step: Step, position: int) -> bool:
        """Return True if a call that writes a part of its operand may write to the operand's memory."""
        if not writes_a_part(step) or step.results[0] not in self.schedule.first:
            return False
        into = step.operands[0]
        owned = owns_memory(step, self.schedule) or self.aliases.group(into).foreign
        return owned and self._overwrites.allows(step, step.results[0], into, position)

    def _targets(self, step: Step) -> str:
        """Return the left side of a call. Kernels return tuples."""
        names = self.name_results(step)
        return ", ".join(names) + ("," if step.name == KERNEL and len(names) == 1 else "")

    def _whole_aliases(self) -> Aliases:
        whole = Aliases(self.aliases.foreign)
        for step in self.schedule.steps:
            whole.add(step, alone=step.starts and self._is_alone(step))
        return whole

    def _write_waits(self, position: int) -> None:
        for value in self._waits.get(position, ()):
            self.line(f"{self.name(value)} = {self.name(value)}.wait()")

    def _write_stores(self, position: int) -> None:
        for old, new in self._stores.get(position, ()):
            if new in self.overwritten and self.aliases.group(new) is self.aliases.group(old):
                into, value = self.name(old), self.name(new)
                self.line(f"if {value} is not {into}: rank.store({into}, {value})")
                continue
            group = self.aliases.group(new)
            copy = ".clone()" if group.foreign or group.stored else ""
            group.stored = True
            self.line(f"rank.store({self.name(old)}, {self.name(new)}{copy})")

    def _write_after(self, position: int) -> None:
        for value, lines in self.after.get(position, ()):
            self.program.lines += lines(self.name(value))

    def _write_inner(self, schedule: Schedule, aliases: Aliases) -> Block:
        """Write the body of a loop."""
        inner = Body(self.program, schedule, aliases, self.indent + "    ")
        inner.write()
        return inner

    def _write_place(self, op: ir.Operation) -> None:
        """Write a comment if the phase or the user's source line changes."""
        phase = phase_of(op) or self.program.place[0]
        source = self.program.source(op) or self.program.place[1]
        if (phase, source) == self.program.place:
            return
        if phase != self.program.place[0]:
            self.line(f"# -- {phase}")
        if source != self.program.place[1]:
            self.line(f"# {source}")
        self.program.place = (phase, source)

    def _may_reuse(self, value: ir.Value, position: int) -> bool:
        """Return True if the program owns the memory of ``value`` and needs it no more after ``position``."""
        group = self.aliases.group(value)
        if group.foreign or group.stored:
            return False
        return all(self.schedule.last.get(v, -1) <= position for v in group.members)

    def _is_alone(self, step: Step) -> bool:
        return prod(a.size for a in self.program.dist.spanned(step.op)) == 1


def _rounded(step: Step) -> dict[ir.Value, torch.dtype]:
    """Return a layer norm's 16-bit mean and rstd. A GPU computes them in f32, whatever the trace had."""
    if step.call is None or step.call.spec.target != "aten.native_layer_norm":
        return {}
    made = zip(step.results[1:], step.call.spec.results[1:], strict=True)
    return {value: type_.dtype for value, type_ in made if type_ and type_.dtype.itemsize == 2}


def _contiguous(shape: Sequence[int]) -> list[int] | None:
    """Return the strides of a contiguous tensor; None if a size is not known."""
    return None if None in shape else [prod(shape[d + 1 :]) for d in range(len(shape))]


def _place_stores(schedule: Schedule, stores: list[Store]) -> dict[int, list[Store]]:
    """Place each store after its new value is computed and its old value is last read.

    A store counts as a use of both. Stores of values in flight are delayed until the limit of such values is
    reached, so that communication overlaps with computation.
    """
    placed: dict[int, list[Store]] = {}
    starts = sorted(schedule.made[new] for _, new in stores if _is_started(schedule, new))
    for old, new in stores:
        made = schedule.made.get(new, 0)
        if _is_started(schedule, new):
            later = starts[starts.index(made) + PENDING_STORES :]
            made = later[0] if later else schedule.end
        position = max(made, schedule.last.get(old, 0))
        placed.setdefault(min(position, schedule.end), []).append((old, new))
    for position, pairs in placed.items():
        for _, new in pairs:
            schedule.need(new, position)
    return placed


def _is_started(schedule: Schedule, value: ir.Value) -> bool:
    made = schedule.made.get(value)
    return made is not None and schedule.steps[made].starts
