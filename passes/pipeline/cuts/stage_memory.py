"""Memory of stages on each device: parameters, gradients, optimizer state, and activations in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from torch_mlir import ir

from shardc.cost.memory import HeldItem, RankMemory, StageMemory, held_between, peak_activations
from shardc.dialects.aten.call import target_name
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.manager.copy_ops import reads
from shardc.passes.pipeline.cuts.balance import Forward
from shardc.passes.pipeline.stages.activations import resolved
from shardc.passes.pipeline.stages.assign_stages import free_ops
from shardc.passes.pipeline.stages.recompute import of_micro_batch
from shardc.passes.pipeline.stages.stage_bodies import Stages, is_saved
from shardc.passes.pipeline.stages.step_program import StepProgram, body_ops, made_from, size_bytes
from shardc.passes.recompute.policies import is_kept

_READ_BY_GRADIENT = frozenset(
    f"aten.{name}"
    for name in ("_log_softmax", "_softmax", "exp", "reciprocal", "relu", "rsqrt", "sigmoid", "sqrt", "tanh")
) | {"shardc.attention"}
"""Ops whose gradient reads their result."""


def held_by_ranks(
    program: StepProgram, bodies: Stages, kept: Sequence[float], schedule: Schedule
) -> list[RankMemory]:
    """Return the memory of each rank; ``kept`` are the bytes that each stage keeps for a micro-batch."""
    peaks = peak_activations(schedule, kept)
    places = [{schedule.route(a.micro_batch).index(a.stage) for a in order} for order in schedule.orders]
    return [
        RankMemory(rank, total, peaks[rank]) for rank, total in enumerate(_state(program, bodies, places))
    ]


def state_of_stages(program: StepProgram, bodies: Stages) -> list[int]:
    """Return the bytes of parameters, gradients and optimizer state of each stage."""
    stages = sorted({index for index, _, _ in bodies.bodies})
    return _state(program, bodies, [{index} for index in stages])


def _state(program: StepProgram, bodies: Stages, holders: Iterable[set[int]]) -> list[int]:
    """Return the bytes of state of each device, given the stages that it holds."""
    state, found = _state_bytes(program), []
    for stages in holders:
        own = [body for (index, _, _), body in bodies.bodies.items() if index in stages]
        names = {name for body in own for value in body.captures for name in program.roots.get(value, ())}
        sums = {number for body in own for number in body.numbers}
        total = sum(state.get(name, 0) for name in names) + sum(size_bytes(program.carried[n]) for n in sums)
        found.append(total)
    return found


def _state_bytes(program: StepProgram) -> dict[str, int]:
    """Map each parameter's name to the bytes of the parameter and its optimizer state on a device."""
    found: dict[str, int] = {}
    for value, (role, name) in program.keys.items():
        owner = {"param": name, "opt_state": name.rpartition("/")[0]}.get(role)
        if owner is not None:
            found[owner] = found.get(owner, 0) + size_bytes(value)
    return found


def stage_memory(
    program: StepProgram, forward: Forward, ends: Sequence[int], schedule: Schedule, policies: Sequence[str]
) -> StageMemory:
    """Estimate the memory of each stage for cuts at ``ends``, for the search.

    Values that backward reads are assumed to be kept by the stages whose forward reads them.
    """
    items = _Items(program, forward)
    state = held_between(items.parameters(_state_bytes(program)), ends)
    kept = {policy: held_between(items.kept(policy), ends) for policy in dict.fromkeys(policies)}
    return StageMemory(state, [kept[policy] for policy in policies], schedule)


class _Items:
    """Values that stages may hold, with the numbers of the forward ops that use them."""

    def __init__(self, program: StepProgram, forward: Forward) -> None:
        self._program, self._ops = program, forward.ops
        self._free = free_ops(program)
        self._made: dict[ir.Value, int] = {r: i for i, op in enumerate(self._ops) for r in op.results}
        self._readers: dict[ir.Value, list[int]] = {}
        for i, op in enumerate(self._ops):
            for value in reads(op):
                self._readers.setdefault(value, []).append(i)

    def parameters(self, state_bytes: Mapping[str, int]) -> list[HeldItem]:
        """Return parameters with optimizer state, and gradients of the parameters' size."""
        touched: dict[str, list[int]] = {}
        for value, readers in self._readers.items():
            if isinstance(value.owner, ir.Block):
                for name in self._program.roots.get(value, ()):
                    touched.setdefault(name, []).extend(readers)
        params = {name: size_bytes(v) for v, (role, name) in self._program.keys.items() if role == "param"}
        return [HeldItem(state_bytes[name] + params[name], sorted(ops)) for name, ops in touched.items()]

    def kept(self, policy: str) -> list[HeldItem]:
        """Return the values of one micro-batch that are kept from forward to backward."""
        inputs = [
            HeldItem(size_bytes(value), readers, self._made[value])
            for value, readers in self._readers.items()
            if value in self._made
        ]
        if policy == "full":
            return inputs
        data = of_micro_batch(self._program)
        dear = lambda v: policy == "none" or (v in data and is_kept(v.owner.operation))  # noqa: E731
        found = dict.fromkeys(resolved(value) for value in self._needed(dear))
        own = [HeldItem(size_bytes(value), self._touched(value)) for value in found if value in self._made]
        if policy != "none":
            return [*own, *inputs]
        drawn = [v for v in found if self._is_saved(v) and v in self._readers]
        return own + [HeldItem(size_bytes(value), self._readers[value]) for value in drawn]

    def _touched(self, value: ir.Value) -> list[int]:
        """Return the ops that need a value kept: its readers, and its producer if that op's gradient reads
        it.
        """
        readers = sorted(self._through_views(value))
        own = target_name(value.owner.operation) in _READ_BY_GRADIENT or not readers
        return [self._made[value], *readers] if own else readers

    def _through_views(self, value: ir.Value) -> set[int]:
        found = set(self._readers.get(value, ()))
        for number in list(found):
            result = self._ops[number].results[0]
            if resolved(result) == resolved(value):
                found |= self._through_views(result)
        return found

    def _is_saved(self, value: ir.Value) -> bool:
        is_free = isinstance(value, ir.OpResult) and value.owner.results[0] in self._free
        return is_free and is_saved(value.owner.operation)

    def _needed(self, dear: Callable[[ir.Value], bool]) -> dict[ir.Value, None]:
        """Return the kept values from which all forward values that backward reads can be computed."""
        forward = {op.results[0] for op in self._ops}
        todo = [
            value
            for op in body_ops(self._program.body)
            if op.results[0] not in forward and op.results[0] not in self._free
            for value in reads(op)
        ]
        is_kept = lambda v: self._is_saved(v) or (v in self._made and dear(v))  # noqa: E731
        values = made_from(todo, lambda v: v in self._made and not is_kept(v))
        return dict.fromkeys(filter(is_kept, values))
