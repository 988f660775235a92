"""Plans of other libraries for the parameters of a step, combined with presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.dialects.dist.mesh import Mesh
from shardc.passes.experts.expert_weights import expert_parameters
from shardc.passes.manager.program import Program
from shardc.passes.plan.attention import attention_of
from shardc.passes.plan.column_row import Cut, column_row_cuts
from shardc.passes.plan.dist_apply_plan import arguments_of
from shardc.passes.plan.named_styles import without_experts
from shardc.passes.plan.plan import Plan
from shardc.passes.plan.presets import Setting, read_preset


@dataclass(frozen=True)
class StylePlan:
    """A product of presets, with plans of other libraries for some of them.

    ``dims`` comes from a plan for ``parallelize_module``: parameter -> the dim that ``tensor`` or
    ``sequence`` splits; all other parameters stay whole. ``named`` is instead a ``tp_plan`` of
    ``transformers``, with names of styles. ``experts`` is an ``ep_plan``, for the preset ``experts``. Without
    ``dims`` and ``named``, the model's own plan is used.
    """

    text: str
    dims: Mapping[str, int] | None = None
    named: Mapping[str, str] | None = None
    experts: Mapping[str, str] = field(default_factory=dict)


def read_styles(
    plan: StylePlan, program: Program, mesh: Mesh, model_plan: Mapping[str, str] | None = None
) -> Plan:
    """Return the plan for this step. Raises UnknownStyle, and the errors of presets."""
    if plan.dims is not None:
        columns = {name: Cut(dim) for name, dim in plan.dims.items()}
    else:
        named = plan.named or model_plan
        columns = column_row_cuts(program, without_experts(named, plan.experts) if named else None)
    experts = column_row_cuts(program, plan.experts) if plan.experts else {}
    setting = Setting(
        arguments_of(program),
        mesh,
        columns,
        experts,
        given=plan.dims is not None,
        routed=expert_parameters(program),
        attention=attention_of(program),
    )
    return read_preset(plan.text, setting)
