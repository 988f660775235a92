"""``pp_plan`` of ``transformers``: the modules at which the stages of a pipeline start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from shardc.diagnostics.styles import BadStagePlan
from shardc.step.foreign.names import matches_something, names_of, no_match


@dataclass(frozen=True)
class StageCuts:
    """Modules at which all stages but the first start, and the names of the values that flow into each."""

    modules: tuple[str, ...]
    flows: tuple[str, ...]


def stage_cuts(model: nn.Module, plan: Mapping[str, object], stages: int, where: str) -> StageCuts:
    """Cut the layers of a plan such as ``{"layers": (["hidden_states"], ["hidden_states"])}`` evenly.

    As in ``transformers``, stages have equal numbers of layers, and the last one also has the remainder.
    Names that are both inputs and outputs of a layer flow from stage to stage. Raises BadStagePlan,
    PatternMatchesNoModule.
    """
    for name in plan:
        if not matches_something(names_of(model), name):
            raise no_match(model, name, "stages", where)
    for name, ends in plan.items():
        layers = _layers(model, name)
        if len(layers) < 2:
            continue
        takes, gives = _ends(name, ends, stages, where)
        flows = tuple(value for value in gives if value in takes)
        if not flows:
            problem = f"{name!r} gives {', '.join(gives)} and takes {', '.join(takes)}"
            raise BadStagePlan(stages=stages, problem=problem, where=where)
        if len(layers) < stages:
            problem = f"{name!r} has {len(layers)} layers"
            raise BadStagePlan(stages=stages, problem=problem, where=where)
        each = len(layers) // stages
        return StageCuts(tuple(layers[each * stage] for stage in range(1, stages)), flows)
    raise BadStagePlan(stages=stages, problem="none of its modules is a list of layers", where=where)


def _layers(model: nn.Module, name: str) -> list[str]:
    """Return the names of the modules in the list ``name``; none if it is no list of modules."""
    found = next(((p, m) for p, m in model.named_modules() if p == name or p.endswith(f".{name}")), None)
    if found is None or not isinstance(found[1], nn.ModuleList | nn.Sequential):
        return []
    return [f"{found[0]}.{child}" for child, _ in found[1].named_children()]


def _ends(name: str, ends: object, stages: int, where: str) -> tuple[list[str], list[str]]:
    """Return the names of a module's inputs and outputs. Raises BadStagePlan."""
    if isinstance(ends, Sequence) and len(ends) == 2 and all(_are_names(part) for part in ends):
        return list(ends[0]), list(ends[1])
    problem = f"{name!r} has {ends!r}, not two lists of names"
    raise BadStagePlan(stages=stages, problem=problem, where=where)


def _are_names(part: object) -> bool:
    return isinstance(part, list | tuple) and all(isinstance(name, str) for name in part)
