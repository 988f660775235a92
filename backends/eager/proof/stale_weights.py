"""What a pipeline that updates its stages separately must make: the uncut step, on old weights.

The micro-batches run one after the other, each whole, on the versions of the weights that the schedule says
its stages see. There are no stages, sends or orders here, so what a pipeline makes can be held against it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch_mlir import ir

from shardc.backends.eager.dist_ops import Values
from shardc.backends.eager.interpreter import Environment, Machine, computing, widened
from shardc.backends.eager.program import read_block
from shardc.backends.eager.ranks import Ranks
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.pipe.action import OPTIMIZER, Action, Collective, parse_action
from shardc.dialects.pipe.action_op import ActionOp
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.dialects.pipe.weight_versions import forward_weights
from shardc.passes.pipeline.stages.step_program import StepProgram, read_step, reads

Key = tuple[str, str]
"""Role and name."""


def asynchronous_schedule(module: ir.Module) -> Schedule | None:
    """The schedule of a pipeline that changes the mathematics; None of any other module."""
    op = find_schedule(module)
    schedule = None if op is None else read_schedule(op)
    return schedule if schedule is not None and schedule.changes_mathematics else None


def stages_of_state(module: ir.Module) -> dict[Key, int]:
    """State that a pipeline's optimizers replace, by role and name -> the stage that does."""
    found: dict[Key, int] = {}
    for function in rank_functions(module):
        returned = function.regions[0].blocks[0].operations[-1].operation.operands
        for value, key in zip(returned, _result_keys(function), strict=True):
            action = _action(value)
            if action is not None and action.kind == OPTIMIZER:
                found[key] = action.stage
    return found


def _result_keys(function: ir.Operation) -> list[Key]:
    attributes = [ir.DictAttr(a) for a in function.attributes["res_attrs"]]
    return [(ir.StringAttr(a["dist.role"]).value, ir.StringAttr(a["dist.name"]).value) for a in attributes]


def _action(value: ir.Value) -> Action | Collective | None:
    """The action that made an element of a tuple."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "torch.prim.TupleUnpack":
        return None
    made = value.owner.operation.operands[0].owner
    op = None if isinstance(made, ir.Block) else made.operation
    return parse_action(op.attributes["action"].value) if op and op.name == ActionOp.OPERATION_NAME else None


class StaleStep:
    """The step of level 3 in ``module`` on old weights of ``schedule``. ``stages``: state -> its stage."""

    def __init__(self, module: ir.Module, schedule: Schedule, stages: Mapping[Key, int]) -> None:
        assert schedule.updates is not None
        self._program = read_step(module)
        self._every = schedule.updates.every
        self._micro_batches = schedule.micro_batches
        self._stages = stages
        self._uses = {(u.action.stage, u.action.micro_batch): u.version for u in forward_weights(schedule)}
        mesh = read_mesh(module)
        assert mesh is not None
        (time,) = [axis for axis in mesh.axes if axis.kind == "time"]
        self._axis = mesh.whole(time.name)
        self._mesh, self._codec = mesh, ShardingCodec(module.context, mesh)
        self._grouped = _sums_for(self._program, stages)

    def run(self, arguments: Mapping[Key, list[torch.Tensor]], widen: bool) -> dict[Key, list[torch.Tensor]]:
        """The results of one step by role and name, a tensor for each rank."""
        ranks = Ranks(self._mesh, self._codec, self._mesh.world_size)
        machine = Machine(ranks, widen, None, None)
        given = {k: [widened(t) for t in values] if widen else values for k, values in arguments.items()}
        with computing(widen):
            return _Run(self, machine, ranks, given).steps()


class _Run:
    """One step: ``versions[v]`` is all state behind v updates."""

    def __init__(self, step: StaleStep, machine: Machine, ranks: Ranks, given: Mapping[Key, Values]) -> None:
        self._step, self._program = step, step._program
        self._machine, self._ranks, self._given = machine, ranks, given
        *self._instructions, self._end = read_block(self._program.block, machine.reader)
        self._at = next(i for i, found in enumerate(self._instructions) if found.op == self._program.loop)
        self.versions = [{key: given[key] for key in step._stages}]

    def steps(self) -> dict[Key, list[torch.Tensor]]:
        step = self._step
        sums: list[Values] | None = None
        results: dict[Key, Values] = {}
        for m in range(step._micro_batches):
            state = {key: self.versions[step._uses[stage, m]][key] for key, stage in step._stages.items()}
            values = self._before(state)
            inits = [values[v] for v in self._program.values.inits]
            if sums is None:
                sums = inits
            elif m % step._every == 0:
                both = enumerate(zip(inits, sums, strict=True))
                sums = [init if n in step._grouped else s for n, (init, s) in both]
            sums = self._micro_batch(m, sums, values)
            if (m + 1) % step._every == 0:
                results = self._after(sums)
                self.versions.append({key: results[key] for key in step._stages})
        return results

    def _before(self, state: Mapping[Key, Values]) -> Environment:
        """What is made before the loop, of one version of the weights."""
        values = {v: state.get(key, self._given[key]) for v, key in self._program.keys.items()}
        for instruction in self._instructions[: self._at]:
            self._machine.run_instruction(instruction, values)
        return values

    def _micro_batch(self, number: int, sums: list[Values], values: Environment) -> list[Values]:
        captures = [self._machine.value_of(v, values) for v in self._program.values.captures]
        with self._ranks.at(self._step._axis, number):
            (made,) = self._machine.run_block(self._program.body, [*sums, *captures])
        return made

    def _after(self, sums: list[Values]) -> dict[Key, Values]:
        """All results, from the newest state and a group's sums."""
        values = self._before(self.versions[-1])
        values[self._program.loop.results[0]] = sums
        for instruction in self._instructions[self._at + 1 :]:
            self._machine.run_instruction(instruction, values)
        found = [self._machine.value_of(v, values) for v in self._end.op.operands]
        return dict(zip(_result_keys(self._program.function), found, strict=True))


def _sums_for(program: StepProgram, stages: Mapping[Key, int]) -> set[int]:
    """The numbers of the sums that updates of state read."""
    returned = program.block.operations[-1].operation.operands
    keys = _result_keys(program.function)
    needed = {value for value, key in zip(returned, keys, strict=True) if key in stages}
    for op in reversed(program.outside):
        if any(result in needed for result in op.results):
            needed.update(reads(op))
    return {number for number, value in enumerate(program.values.carried) if value in needed}
