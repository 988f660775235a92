"""Presets: what the field calls data parallel, ZeRO, tensor and sequence parallel,
as annotations on a few arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from shardc.diagnostics.base import remark
from shardc.diagnostics.plan import TooManyWays
from shardc.dialects.dist.mesh import Mesh
from shardc.options.presets import plan_terms
from shardc.passes.plan.column_row import Cut
from shardc.passes.plan.plan import Argument, DimNames, Plan, time_axes


@dataclass(frozen=True)
class Setting:
    """All that a preset may look at."""

    arguments: Sequence[Argument]
    mesh: Mesh
    column_row: Mapping[str, Cut]
    """Parameter name -> how tensor parallelism cuts it."""

    def of_role(self, role: str) -> list[Argument]:
        return [a for a in self.arguments if a.role == role]


def read_preset(text: str, setting: Setting) -> Plan:
    """The plan that a product of presets stands for: ``data``, ``zero3*tensor``,
    ``zero2:fsdp*sequence:tp``. Raises what :func:`~shardc.options.presets.plan_terms` raises.
    """
    plan = Plan(text)
    for name, axis in plan_terms(text, {a.name: a.size for a in setting.mesh.space}):
        APPLY[name](plan, setting, axis)
    close_inputs(plan, setting)
    return plan


def data(plan: Plan, setting: Setting, axis: str) -> None:
    """Cut the batch dim of every input; gradients come out partial and are reduced where they are used."""
    batch = _common_size(setting, 0)
    for argument in setting.of_role("input"):
        if argument.shape and argument.shape[0] == batch:
            plan.say(argument.key, _one_dim(argument, 0, (axis,)), closed=True, why="data")


def zero(plan: Plan, setting: Setting, axis: str, *, stage: int) -> None:
    """Data parallel, and the state cut over the same axis: 1 optimizer state, 2 gradients too, 3 parameters
    too.

    Rajbhandari et al., ZeRO (SC20). The cuts are refinements, so they never get in the way of tensor
    parallelism.
    """
    data(plan, setting, axis)
    for argument in setting.of_role("opt_state"):
        if argument.shape:
            plan.refine(argument.key, 1, axis, -1, why=f"zero{stage}")
    for argument in setting.of_role("param"):
        if stage >= 2:
            plan.refine(("grad", argument.name), 1, axis, -1, why=f"zero{stage}")
        if stage >= 3:
            plan.refine(argument.key, 1, axis, -1, why=f"zero{stage}")


def tensor(plan: Plan, setting: Setting, axis: str) -> None:
    """Cut weights as Megatron does (Shoeybi et al. 2019): the model's own plan, else the first of each chain
    of matmuls.

    Only those weights are annotated; the row cut of the second matmul of a chain follows by propagation.
    """
    ways = setting.mesh.size(axis)
    for argument in setting.of_role("param"):
        cut = setting.column_row.get(argument.name)
        if cut is None or (cut.fused is not None and not cut.fused.divides(ways)):
            continue
        dim = cut.dim
        if argument.shape[dim] < ways:
            remark(
                "NotCut",
                f"{argument.name} {argument.shape} stays whole: dim {dim} has no element for each of "
                f"{axis}={ways}",
            )
            continue
        plan.say(argument.key, _one_dim(argument, dim, (axis,)), closed=False, why="tensor")


def sequence(plan: Plan, setting: Setting, axis: str) -> None:
    """Tensor parallel, with activations between its regions cut along the sequence (Korthikanti
    et al. 2022).
    """
    tensor(plan, setting, axis)
    length = _common_size(setting, 1)
    for argument in setting.of_role("input"):
        if len(argument.shape) > 1 and argument.shape[1] == length and length >= setting.mesh.size(axis):
            plan.refine(argument.key, 1, axis, 1, why="sequence")


def pipeline(plan: Plan, setting: Setting, axis: str) -> None:
    """Nothing is cut along the axis: ``pipe-cut`` gives each of its ranks a part of the program."""
    plan.pipeline = axis


Preset = Callable[[Plan, Setting, str], None]
APPLY: dict[str, Preset] = {
    "data": data,
    "zero1": partial(zero, stage=1),
    "zero2": partial(zero, stage=2),
    "zero3": partial(zero, stage=3),
    "tensor": tensor,
    "sequence": sequence,
    "pipeline": pipeline,
}
"""What each of ``shardc.options.presets.PRESETS`` says of a plan."""


def close_inputs(plan: Plan, setting: Setting) -> None:
    """Time axes cut batches last, after all devices' axes; then inputs are closed: propagation never cuts
    one.
    """
    batch = _common_size(setting, 0)
    times = time_axes(setting.mesh)
    for argument in setting.of_role("input"):
        entry = plan.entries.get(argument.key)
        known = entry.dims if entry is not None else None
        named = {axis for axes in known or () for axis in axes}
        cut = (
            tuple(t for t in times if t not in named) if argument.shape and argument.shape[0] == batch else ()
        )
        plan.say(
            argument.key,
            _one_dim(argument, 0, cut),
            closed=True,
            why=entry.why if entry and known else "input",
        )
        dims = plan.entries[argument.key].dims
        if dims:
            _check_ways(argument, 0, dims[0], setting.mesh)


def _one_dim(argument: Argument, dim: int, axes: tuple[str, ...]) -> DimNames:
    return tuple(axes if d == dim else () for d in range(len(argument.shape)))


def _common_size(setting: Setting, dim: int) -> int:
    """The size that most inputs have in ``dim``: the batch (dim 0) or the sequence length (dim 1);
    0 if none has one.
    """
    sizes = Counter(a.shape[dim] for a in setting.of_role("input") if len(a.shape) > dim)
    return sizes.most_common(1)[0][0] if sizes else 0


def _check_ways(argument: Argument, dim: int, axes: tuple[str, ...], mesh: Mesh) -> None:
    ways = 1
    for axis in axes:
        ways *= mesh.size(axis)
    if argument.shape[dim] % ways and argument.shape[dim] < ways:
        raise TooManyWays(
            dim=dim, name=argument.name, size=argument.shape[dim], ways=ways, axes=" x ".join(axes)
        )
