"""Costs of a pipeline's stages on a cluster, before a schedule is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from shardc.cost.pipeline import StageCost
from shardc.cost.step.costs import Costs
from shardc.cost.step.step_time import stage_cost
from shardc.passes.manager.program import copy_module
from shardc.passes.pipeline.cuts.stage_memory import state_of_stages
from shardc.passes.pipeline.ranks.collective_bodies import hoist_gathers
from shardc.passes.pipeline.stages.activations import kept_bytes
from shardc.passes.pipeline.stages.assign_stages import assign_stages, forward_of
from shardc.passes.pipeline.stages.keep_sent import keep_sent
from shardc.passes.pipeline.stages.stage_bodies import PARTS, Stages, stage_bodies, write_bodies
from shardc.passes.pipeline.stages.step_program import StepProgram, read_step, size_bytes
from shardc.report.step.read_step import read_stages


@dataclass(frozen=True)
class Cutting:
    """Options of cutting a step into stages.

    ``policies``: a recomputation policy for each stage. The others are fields of
    :class:`~shardc.options.pipeline.Pipeline`.
    """

    policies: Sequence[str]
    cuts: Sequence[str] = ()
    gather: str = "micro-batch"
    speeds: Sequence[float] = ()

    @property
    def stages(self) -> int:
        return len(self.policies)


def stage_costs(module: ir.Module, cutting: Cutting, costs: Costs) -> list[StageCost]:
    """Return the cost of each stage of a level 3 step: seconds as in ``shardc plan``, and bytes per device.

    The pass ``pipe-cut`` makes the same stages. Raises what finding them raises, such as TooManyStages.
    """
    module = copy_module(module)
    program = read_step(module)
    forward = forward_of(program)
    forward.speeds = list(cutting.speeds)
    places = forward.named(cutting.cuts) if cutting.cuts else forward.balanced(cutting.stages)
    kinds = dict.fromkeys(range(cutting.stages), PARTS if program.trains else ("F",))
    keep_sent(program, forward, places)
    assignment = assign_stages(program, forward, places)
    bodies = stage_bodies(program, assignment, kinds)
    kept = kept_bytes(program, assignment, bodies, cutting.policies)
    if any(policy != "none" for policy in cutting.policies):
        assignment = assign_stages(program, forward, places, cutting.policies)
        bodies = stage_bodies(program, assignment, kinds)
    state = state_of_stages(program, bodies)
    if cutting.gather == "step":
        hoist_gathers(program, bodies)
    return [
        _as_fast(replace(cost, activation_bytes=held, weight_bytes=held, state_bytes=fixed), cutting, number)
        for number, (cost, held, fixed) in enumerate(
            zip(_seconds(module, program, bodies, costs), kept, state, strict=True)
        )
    ]


def _seconds(module: ir.Module, program: StepProgram, bodies: Stages, costs: Costs) -> list[StageCost]:
    """Return the stages' costs without the bytes that they hold."""
    write_bodies(program, bodies, ir.InsertionPoint(program.function))
    sent: dict[int, float] = {}
    for (stage, _), values in bodies.down.items():
        sent[stage] = max(sent.get(stage, 0.0), float(sum(map(size_bytes, values))))
    stages = read_stages(module, sent)
    return [stage_cost(stage, costs) for stage in stages]


def _as_fast(cost: StageCost, cutting: Cutting, number: int) -> StageCost:
    """Return the cost on the stage's own rank. ``cost`` is that of the slowest rank."""
    if not cutting.speeds:
        return cost
    return cost.faster(cutting.speeds[number] / min(cutting.speeds))
