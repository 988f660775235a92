"""``dist-apply-plan``: writes a plan as annotations of the step's arguments and gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch_mlir import ir

from shardc.diagnostics.cli import BadPassOption
from shardc.dialects.dist.mesh import Mesh, MeshAxis, read_mesh, write_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.options.presets import AUTO, CONTEXT_PRESETS
from shardc.passes.experts.expert_weights import expert_parameters
from shardc.passes.experts.looped import looped_experts
from shardc.passes.manager.attention import ATTRIBUTE, CALLS
from shardc.passes.manager.attributes import SEQUENCE_AXES, edge_attributes, observed, set_edge_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.pixels import CONVOLUTION, follow_pixels, pixels_of
from shardc.passes.manager.program import Program, read_program
from shardc.passes.plan.attention import attention_of
from shardc.passes.plan.column_row import column_row_cuts
from shardc.passes.plan.feature_dims import feature_dims
from shardc.passes.plan.plan import ATTENTION, Argument, Entry, Plan
from shardc.passes.plan.presets import Setting, read_preset
from shardc.passes.propagate.refinement import refinement_attribute


@dataclass(frozen=True)
class DistApplyPlan(Pass):
    """Annotates arguments by a preset or a product of presets.

    The module has a mesh already, or ``mesh`` gives one: ``dist-apply-plan{plan=data*tensor
    mesh=data=2,tensor=2}``.
    """

    name: ClassVar[str] = "dist-apply-plan"
    plan: str = "data"
    mesh: tuple[str, ...] = ()

    def run(self, module: ir.Module) -> None:
        if self.plan == AUTO:
            expected = "a plan; the pass dist-search finds one, in place of dist-propagate"
            raise BadPassOption(pass_name=self.name, option="plan", text=self.plan, expected=expected)
        if self.mesh and read_mesh(module) is None:
            write_mesh(module, Mesh(tuple(self._axes())))
        mesh, program = read_mesh(module), read_program(module)
        if mesh is not None and program is not None:
            apply_plan(program, mesh, preset_plan(self.plan, program, mesh))

    def _axes(self) -> Iterator[MeshAxis]:
        """Yield the axes in the option ``mesh``. Raises BadPassOption."""
        seen: set[str] = set()
        for entry in self.mesh:
            name, _, size = entry.partition("=")
            if not name.isidentifier() or name in seen or not size.isdecimal() or int(size) < 1:
                expected = "different axes with sizes from 1, such as data=2,tensor=2"
                text = ",".join(self.mesh)
                raise BadPassOption(pass_name=self.name, option="mesh", text=text, expected=expected)
            seen.add(name)
            yield MeshAxis(name, int(size))


def preset_plan(text: str, program: Program, mesh: Mesh, model_plan: Mapping[str, str] | None = None) -> Plan:
    """Return the plan of a product of presets. ``model_plan`` is the model's own ``tp_plan``, if it has
    one.
    """
    needs_columns = any(word in text for word in ("tensor", "sequence"))
    column_row = column_row_cuts(program, model_plan) if needs_columns else {}
    routed, attention = expert_parameters(program), attention_of(program)
    looped = None if routed or "expert" not in text else looped_experts(program)
    arguments = arguments_of(program)
    reads_time = any(name in text for name in CONTEXT_PRESETS)
    setting = Setting(
        arguments,
        mesh,
        column_row,
        routed=routed,
        attention=attention,
        looped=looped,
        waveforms=waveforms_of(program) if reads_time else frozenset(),
        features=feature_dims(program) if reads_time else {},
    )
    return read_preset(text, setting)


def waveforms_of(program: Program) -> frozenset[str]:
    """Return the names of inputs [batch, samples] along whose samples a convolution's windows move."""
    found = set()
    for position, value in enumerate(program.arguments):
        (role, name), type_ = program.argument_key(position), program.types[value]
        if role == "input" and len(type_.shape) == 2 and _is_real(type_.dtype):
            reached = follow_pixels(program, {value: {1: ()}})
            if any(n.spec.target == CONVOLUTION and pixels_of(n, reached) for n in program.nodes):
                found.add(name)
    return frozenset(found)


def arguments_of(program: Program) -> list[Argument]:
    """Return the step's arguments in the form that presets read."""
    pairs = zip(program.argument_keys(), program.arguments, strict=True)
    return [Argument(*key, (t := program.types[v]).shape, not _is_real(t.dtype)) for key, v in pairs]


def _is_real(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def apply_plan(program: Program, mesh: Mesh, plan: Plan) -> None:
    """Write a plan's entries into the IR."""
    context = program.module.context
    codec = ShardingCodec(context, mesh)
    rows = []
    for position, value in enumerate(program.arguments):
        row = edge_attributes(program.function, "arg_attrs", position)
        entry = plan.entries.get(program.argument_key(position))
        if entry is not None:
            row |= _attributes(entry, len(program.types[value].shape), mesh, codec, context)
        rows.append(row)
    set_edge_attributes(program.function, "arg_attrs", rows)
    rows_of = plan.entries.get(ATTENTION)
    if rows_of is not None:
        names = [ir.StringAttr.get(axis, context) for _, axis, _ in rows_of.refine]
        program.function.attributes[SEQUENCE_AXES] = ir.ArrayAttr.get(names, context)
    by = ",".join(f"{how}:{axis}" for axis, how in plan.attention.items())
    for node in program.nodes:
        _annotate_gradient(node.op, plan, context)
        if rows_of is not None and node.spec.target == CALLS[0]:
            node.op.attributes["dist.refine"] = refinement_attribute(context, rows_of.refine)
        if plan.attention and node.spec.target in CALLS:
            node.op.attributes[ATTRIBUTE] = ir.StringAttr.get(by, context)


def _attributes(
    entry: Entry, rank: int, mesh: Mesh, codec: ShardingCodec, context: ir.Context
) -> dict[str, ir.Attribute]:
    row: dict[str, ir.Attribute] = {"dist.why": ir.StringAttr.get(entry.why, context)}
    if entry.dims is not None:
        dims = tuple(tuple(mesh.whole(a) for a in axes) for axes in entry.dims)
        row["dist.sharding"] = codec.write(Sharding(dims, (), (not entry.closed,) * rank))
    if entry.refine:
        row["dist.refine"] = refinement_attribute(context, entry.refine)
    return row


def _annotate_gradient(op: ir.Operation, plan: Plan, context: ir.Context) -> None:
    """Write the refinements of a gradient to the op that produces it."""
    for name, _ in observed(op):
        kind, _, parameter = name.partition(":")
        entry = plan.entries.get((kind, parameter)) if kind == "grad" else None
        if entry is not None and entry.refine:
            op.attributes["dist.refine"] = refinement_attribute(context, entry.refine)
            return
