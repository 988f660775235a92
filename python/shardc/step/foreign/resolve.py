"""Translation of ``plan=`` from the vocabulary of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from torch import nn
from torch.distributed.tensor.parallel import ParallelStyle

from shardc.diagnostics.base import remark
from shardc.diagnostics.styles import MixedPlan, NoPlanOfModel, PlanHasNoPreset
from shardc.frontend.importing.recorder import caller_line
from shardc.options.parallelism import Parallelism, PlanLike
from shardc.options.pipeline import Pipeline
from shardc.options.presets import TENSOR_PRESETS, plan_terms, product_of
from shardc.options.schedules import AUTO, named_rule
from shardc.passes.plan.named_styles import EXPERT_STYLES, named_style
from shardc.passes.plan.style_plan import StylePlan
from shardc.step.foreign.names import class_line, matches_something, names_of, no_match
from shardc.step.foreign.stage_plans import stage_cuts
from shardc.step.foreign.torch_styles import torch_cuts

Kind = Literal["styles", "names of styles", "expert styles", "stages", "shardings"]
PRESETS_OF: Mapping[Kind, tuple[str, ...]] = {
    "styles": TENSOR_PRESETS,
    "names of styles": TENSOR_PRESETS,
    "expert styles": ("experts",),
    "stages": ("pipeline",),
}
"""Kind of mapping -> presets that accept one."""


@dataclass
class _Parts:
    """Mappings found so far in a plan, by kind."""

    model: nn.Module
    where: str
    found: dict[Kind, Mapping[str, object]] = field(default_factory=dict)

    def add(self, key: str, plan: Mapping[str, object], terms: set[str]) -> None:
        kind = _kind(plan, self.where, is_sharding=False)
        takers = PRESETS_OF.get(kind, ())
        if kind in self.found or not terms.intersection(takers):
            fields = {"key": key, "kind": kind, "presets": " or ".join(takers or ("no preset",))}
            raise PlanHasNoPreset(example=takers[0] if takers else "tensor", where=self.where, **fields)
        self.found[kind] = plan


def resolve_plan(
    options: Parallelism, model: nn.Module, pipeline: Pipeline | None
) -> tuple[PlanLike | StylePlan, Pipeline | None]:
    """Return the plan and the pipeline of a compile, translated for ``model``.

    Plans in shardc's own vocabulary are returned unchanged. Raises MixedPlan, PlanHasNoPreset,
    NoPlanOfModel, UnknownStyle, StyleNotForModule, LayoutRefused, PatternMatchesNoModule, StylesDisagree,
    BadStagePlan, and what :func:`~shardc.options.presets.plan_terms` raises.
    """
    plan = options.plan
    if isinstance(plan, str) and not plan.endswith(".json"):
        return _of_model(plan, options.mesh, model), pipeline
    if not isinstance(plan, Mapping):
        return plan, pipeline
    file, line = caller_line()[0]
    parts = _Parts(model, f"{file}:{line}")
    text = product_of(plan)
    if text is None:
        kind = _kind(plan, parts.where, is_sharding=True, axes=options.mesh)
        if kind == "shardings":
            return plan, pipeline
        text = PRESETS_OF[kind][0]
        parts.add(text, plan, {text})
    else:
        plan_terms(text, options.mesh)
        for key, inner in plan.items():
            if isinstance(inner, Mapping) and inner:
                parts.add(key, inner, {name for name, _ in plan_terms(key, options.mesh)})
    chosen = _style_plan(text, parts, options.mesh)
    return chosen, _with_stages(pipeline, parts, options)


def _kind(
    plan: Mapping[str, object], where: str, *, is_sharding: bool, axes: Mapping[str, int] | None = None
) -> Kind:
    """Return the kind of a mapping's values. Raises MixedPlan."""
    rest: Kind = "shardings" if is_sharding else "stages"
    kinds: set[Kind] = {_kind_of(value, axes or {}, rest) for value in plan.values()}
    if kinds == {"names of styles", "expert styles"}:  # an ep_plan may say "all_reduce" and "replicate", too
        return "expert styles"
    if len(kinds) > 1:
        raise MixedPlan(kinds=" and ".join(sorted(kinds)), where=where)
    return kinds.pop() if kinds else rest


def _kind_of(value: object, axes: Mapping[str, int], rest: Kind) -> Kind:
    """Return the kind of one value of a mapping."""
    if isinstance(value, ParallelStyle):
        return "styles"
    if isinstance(value, str) and value not in axes:
        return "expert styles" if value in EXPERT_STYLES else "names of styles"
    return rest


def _of_model(text: str, mesh: Mapping[str, int], model: nn.Module) -> PlanLike | StylePlan:
    """Return the plan of a product of presets, with the model's own plans checked and translated."""
    terms = {name for name, _ in plan_terms(text, mesh)}
    shipped = shipped_plan(model, "tp_plan") if terms.intersection(TENSOR_PRESETS) else {}
    _check_names(model, shipped, class_line(model))
    if "experts" not in terms:
        return text
    experts = shipped_plan(model, "ep_plan")
    if not experts:
        raise NoPlanOfModel(model=type(model).__name__)
    _check_names(model, experts, class_line(model))
    return StylePlan(text, experts=experts)


def shipped_plan(model: nn.Module, which: str) -> dict[str, str]:
    """Return a model's ``tp_plan`` or ``ep_plan``: pattern -> style; empty if it has none."""
    plan = getattr(model, which, None) or getattr(model, f"_{which}", None)
    return {str(name): str(style) for name, style in plan.items()} if isinstance(plan, Mapping) else {}


def _check_names(model: nn.Module, plan: Mapping[str, str], where: str, shipped: bool = True) -> None:
    """Check a plan's styles and patterns.

    Raises UnknownStyle, and PatternMatchesNoModule for a user's pattern that matches nothing. If the model
    ships the pattern, a remark reports it instead.
    """
    names = names_of(model) if plan else []
    for pattern, style in plan.items():
        named_style(pattern, style, where)
        if matches_something(names, pattern):
            continue
        if not shipped:
            raise no_match(model, pattern, style, where)
        remark(
            "PatternUnused",
            f"{pattern!r} ({style}) of the model's own plan matches none of its modules",
            where,
        )


def _style_plan(text: str, parts: _Parts, mesh: Mapping[str, int]) -> StylePlan:
    model, where = parts.model, parts.where
    given = {kind: cast(Mapping[str, str], parts.found.get(kind, {})) for kind in PRESETS_OF}
    shipped = shipped_plan(model, "tp_plan") | shipped_plan(model, "ep_plan")
    for kind in ("names of styles", "expert styles"):
        own = {name: style for name, style in given[kind].items() if shipped.get(name) == style}
        _check_names(model, own, where)
        _check_names(model, {n: s for n, s in given[kind].items() if n not in own}, where, shipped=False)
    base = _of_model(text, mesh, model) if not given["expert styles"] else text
    chosen = base if isinstance(base, StylePlan) else StylePlan(text, experts=given["expert styles"])
    chosen = replace(chosen, named=given["names of styles"] or None)
    if "styles" not in parts.found:
        return chosen
    cuts = torch_cuts(model, cast(Mapping[str, ParallelStyle], parts.found["styles"]), where)
    dims = {name: dim for name, dim in cuts.dims.items() if dim is not None}
    return replace(chosen, dims=dims, text=_along_sequence(text) if cuts.sequence else text)


def _along_sequence(text: str) -> str:
    """Return the product with ``tensor`` replaced by ``sequence``."""
    words = [(word.partition(":"), word) for word in text.split("*")]
    return "*".join(
        "sequence" + colon + axis if name.strip() == "tensor" else word for (name, colon, axis), word in words
    )


def _with_stages(pipeline: Pipeline | None, parts: _Parts, options: Parallelism) -> Pipeline | None:
    """Return the pipeline with the cuts of a ``pp_plan``, unless the user named cuts."""
    plan, chosen = parts.found.get("stages"), pipeline or Pipeline()
    if plan is None or chosen.cuts:
        return pipeline
    fewest = 1
    if isinstance(chosen.schedule, str) and chosen.schedule_path is None and chosen.schedule != AUTO:
        fewest = named_rule(chosen.schedule).fewest
    stages = chosen.stage_count or fewest * options.mesh[options.pipeline_axis()]
    cuts = stage_cuts(parts.model, plan, stages, parts.where)
    flows = " and ".join(cuts.flows)
    text = (
        f"the model's own plan sets the stages: they begin at {', '.join(cuts.modules)} and receive {flows}"
    )
    remark("StagesOfModel", text, parts.where)
    return replace(chosen, stages=cuts.modules)
