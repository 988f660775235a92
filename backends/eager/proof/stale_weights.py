"""Reference for a pipeline that updates its stages separately: the uncut step on old weights.

The micro-batches run one after the other, each whole, on the versions of the weights that its stages see by
the schedule. There are no stages, sends or orders here, so it is an independent reference for the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.interpreter import Environment, Machine, computing, widened
from shardc.backends.eager.program import read_block
from shardc.backends.eager.proof.signature import Key
from shardc.backends.eager.ranks import Ranks, Values
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.pipe.action import OPTIMIZER, Action, Collective, parse_action
from shardc.dialects.pipe.action_op import ActionOp
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.dialects.pipe.weight_versions import forward_weights
from shardc.passes.pipeline.stages.step_program import StepProgram, keys_of, read_step, reads


def asynchronous_schedule(module: ir.Module) -> Schedule | None:
    """Return the schedule of a pipeline that computes with older weights; None for other modules."""
    op = find_schedule(module)
    schedule = None if op is None else read_schedule(op)
    return schedule if schedule is not None and schedule.changes_mathematics else None


def stages_of_state(module: ir.Module) -> dict[Key, int]:
    """Return state by role and name -> the stage whose optimizer updates it."""
    found: dict[Key, int] = {}
    for function in rank_functions(module):
        returned = function.regions[0].blocks[0].operations[-1].operation.operands
        for value, key in zip(returned, keys_of(function, "res_attrs"), strict=True):
            action = _action(value)
            if action is not None and action.kind == OPTIMIZER:
                found[key] = action.stage
    return found


def _action(value: ir.Value) -> Action | Collective | None:
    """Return the action that computed an element of a tuple."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "torch.prim.TupleUnpack":
        return None
    made = value.owner.operation.operands[0].owner
    op = None if isinstance(made, ir.Block) else made.operation
    return parse_action(op.attributes["action"].value) if op and op.name == ActionOp.OPERATION_NAME else None


class StaleStep:
    """Level 3 step of ``module``, run on the old weights of ``schedule``.

    ``versions[v]``: all state after v updates. ``stages``: state -> its stage.
    """

    def __init__(
        self,
        module: ir.Module,
        schedule: Schedule,
        stages: Mapping[Key, int],
        arguments: Mapping[Key, list[Tensor]],
        widen: bool,
    ) -> None:
        mesh = read_mesh(module)
        assert schedule.updates is not None and mesh is not None
        (time,) = [axis for axis in mesh.axes if axis.kind == "time"]
        self._axis, self._widen = mesh.whole(time.name), widen
        self._ranks = Ranks(mesh, ShardingCodec(module.context, mesh), mesh.world_size)
        self._machine = Machine(self._ranks, widen, None, None)
        self._program = read_step(module)
        *self._instructions, self._end = read_block(self._program.block, self._machine.reader)
        self._at = next(i for i, found in enumerate(self._instructions) if found.op == self._program.loop)
        self._every, self._micro_batches = schedule.updates.every, schedule.micro_batches
        self._uses = {(u.action.stage, u.action.micro_batch): u.version for u in forward_weights(schedule)}
        self._stages, self._grouped = stages, _sums_for(self._program, stages)
        self._given = {k: [widened(t) for t in v] if widen else v for k, v in arguments.items()}
        self.versions = [{key: self._given[key] for key in stages}]

    def run(self) -> dict[Key, list[Tensor]]:
        """Run the step; return the results by role and name, a tensor for each rank."""
        sums: list[Values] | None = None
        results: dict[Key, Values] = {}
        with computing(self._widen):
            for m in range(self._micro_batches):
                seen = {key: self._uses[stage, m] for key, stage in self._stages.items()}
                values = self._before({key: self.versions[version][key] for key, version in seen.items()})
                inits = [values[v] for v in self._program.values.inits]
                if sums is None:
                    sums = inits
                elif m % self._every == 0:
                    both = enumerate(zip(inits, sums, strict=True))
                    sums = [init if n in self._grouped else s for n, (init, s) in both]
                sums = self._micro_batch(m, sums, values)
                if (m + 1) % self._every == 0:
                    results = self._after(sums)
                    self.versions.append({key: results[key] for key in self._stages})
        return results

    def _before(self, state: Mapping[Key, Values]) -> Environment:
        """Return the values computed before the loop from one version of the weights."""
        values = {v: state.get(key, self._given[key]) for v, key in self._program.keys.items()}
        for instruction in self._instructions[: self._at]:
            self._machine.run_instruction(instruction, values)
        return values

    def _micro_batch(self, number: int, sums: list[Values], values: Environment) -> list[Values]:
        captures = [self._machine.value_of(v, values) for v in self._program.values.captures]
        with self._ranks.at(self._axis, number):
            (made,) = self._machine.run_block(self._program.body, [*sums, *captures])
        return made

    def _after(self, sums: list[Values]) -> dict[Key, Values]:
        """Return all results, from the newest state and a group's sums."""
        values = self._before(self.versions[-1])
        values[self._program.loop.results[0]] = sums
        for instruction in self._instructions[self._at + 1 :]:
            self._machine.run_instruction(instruction, values)
        found = [self._machine.value_of(v, values) for v in self._end.op.operands]
        return dict(zip(keys_of(self._program.function, "res_attrs"), found, strict=True))


def _sums_for(program: StepProgram, stages: Mapping[Key, int]) -> set[int]:
    """Return the numbers of the sums that updates of state read."""
    returned = program.block.operations[-1].operation.operands
    keys = keys_of(program.function, "res_attrs")
    needed = {value for value, key in zip(returned, keys, strict=True) if key in stages}
    for op in reversed(program.outside):
        if any(result in needed for result in op.results):
            needed.update(reads(op))
    return {number for number, value in enumerate(program.values.carried) if value in needed}
