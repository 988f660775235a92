"""Checks of all plans: the mesh has their axes, and their splits fit the arguments."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from math import prod
from pathlib import Path

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.plan import AxisUsedTwice, BadPlanFile, TooManyDims, TooManyWays, UnknownAxis
from shardc.dialects.dist.mesh import Mesh
from shardc.passes.plan.plan import ATTENTION, Argument, DimNames, Entry, Plan

_ATTENTION = Argument(*ATTENTION, (0, 0, 0, 0))
"""Results of attention, [batch, heads, sequence, head]. Sizes are unknown: plans only refine them."""


def check_plan(plan: Plan, arguments: Sequence[Argument], mesh: Mesh, file: Path | None = None) -> None:
    """Raise AxisUsedTwice, UnknownAxis, TooManyDims or TooManyWays; BadPlanFile for a plan from ``file``."""
    known = {argument.key: argument for argument in (*arguments, _ATTENTION)}
    for (role, name), entry in plan.entries.items():
        argument = known.get(("param", name) if role == "grad" else (role, name))
        if argument is None:
            problem = f"it has an entry for {role} {name!r}, which the step does not have"
            raise BadPlanFile(path=file or "as given", problem=problem)
        found = _problem(argument, entry, mesh)
        if found is not None:
            message = found.render().splitlines()[0].partition(": ")[2]  # without the error's name
            raise found if file is None else BadPlanFile(path=file, problem=message)


def _problem(argument: Argument, entry: Entry, mesh: Mesh) -> ShardcError | None:
    for _, axis, dim in entry.refine:
        if dim >= len(argument.shape):
            return TooManyDims(name=argument.name, given=dim + 1, shape=list(argument.shape))
        if problem := _unknown_axis(argument, axis, mesh):
            return problem
    if entry.dims is None:
        return None
    if len(entry.dims) != len(argument.shape):
        return TooManyDims(name=argument.name, given=len(entry.dims), shape=list(argument.shape))
    shown = [list(axes) if len(axes) > 1 else next(iter(axes), None) for axes in entry.dims]
    return dims_problem(argument, entry.dims, mesh, shown)


def dims_problem(
    argument: Argument, dims: DimNames, mesh: Mesh, shown: Sequence[object]
) -> ShardcError | None:
    """Return the error of the axes of an argument's dims, or None; ``shown`` is the user's form of them."""
    seen: set[str] = set()
    for axis in (axis for axes in dims for axis in axes):
        if problem := _unknown_axis(argument, axis, mesh):
            return problem
        if axis in seen:
            return AxisUsedTwice(name=argument.name, axis=axis, sharding=list(shown))
        seen.add(axis)
    problems = (ways_problem(argument, dim, axes, mesh) for dim, axes in enumerate(dims))
    return next(filter(None, problems), None)


def ways_problem(argument: Argument, dim: int, axes: Sequence[str], mesh: Mesh) -> TooManyWays | None:
    """Return the error if axes split a dim into more blocks than it has elements, else None."""
    size, ways = argument.shape[dim], prod(mesh.size(axis) for axis in axes)
    if size % ways == 0 or size >= ways:
        return None
    return TooManyWays(dim=dim, name=argument.name, size=size, ways=ways, axes=" x ".join(axes))


def _unknown_axis(argument: Argument, axis: str, mesh: Mesh) -> UnknownAxis | None:
    known = [a.name for a in mesh.axes]
    if axis in known:
        return None
    nearest = difflib.get_close_matches(axis, known, n=1, cutoff=0.0) or [*known, "add the axis to the mesh"]
    what = f"the sharding of {argument.name!r}"
    return UnknownAxis(what=what, axis=axis, known=", ".join(known), suggestion=nearest[0])
