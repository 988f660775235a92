"""Plans of shardings that options or the model name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import nn

from shardc.dialects.dist.mesh import Mesh
from shardc.options.parallelism import PlanLike
from shardc.passes.manager.program import Program
from shardc.passes.plan.dist_apply_plan import arguments_of, preset_plan
from shardc.passes.plan.for_batch import for_batch
from shardc.passes.plan.patterns import read_patterns
from shardc.passes.plan.plan import ATTENTION, Plan
from shardc.passes.plan.plan_check import check_plan
from shardc.passes.plan.plan_file import read_plan
from shardc.passes.plan.presets import Setting, close_inputs
from shardc.passes.plan.style_plan import StylePlan, read_styles


def model_plan_of(model: nn.Module) -> Mapping[str, str] | None:
    """Return the tensor-parallel plan that a model ships, such as ``tp_plan`` of a ``transformers`` model.

    It maps module patterns to styles (``colwise``, ``rowwise``, ...). Return None if the model has none.
    """
    plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    if not isinstance(plan, Mapping) or not plan:
        return None
    return {str(pattern): str(style) for pattern, style in plan.items()}


def make_plan(
    plan: PlanLike | StylePlan | Plan, program: Program, mesh: Mesh, model_plan: Mapping[str, str] | None
) -> Plan:
    """Return the plan of a preset's name, a saved plan's path, or a mapping of name patterns to shardings.

    A :class:`Plan` made for another batch is fitted to this one. Raises errors of
    ``shardc.diagnostics.passes.plan`` for a plan that does not fit the step or the mesh.
    """
    arguments, file = arguments_of(program), None
    if isinstance(plan, Plan):
        known = {ATTENTION, *(argument.key for argument in arguments)}
        held = {key: entry for key, entry in plan.entries.items() if key in known}
        chosen = for_batch(replace(plan, entries=held), arguments, mesh)
        if chosen.pipeline:
            # The plan was made without an axis for micro-batches that run as separate programs.
            close_inputs(chosen, Setting(arguments, mesh, {}))
    elif isinstance(plan, StylePlan):
        chosen = read_styles(plan, program, mesh, model_plan)
    elif isinstance(plan, Mapping):
        chosen = read_patterns(plan, arguments, mesh)
    elif isinstance(plan, Path) or plan.endswith(".json"):
        file = Path(plan)
        chosen = read_plan(file, mesh, arguments)
    else:
        chosen = preset_plan(plan, program, mesh, model_plan)
    check_plan(chosen, arguments, mesh, file)
    return chosen
