"""What holds for every plan, wherever it came from: its axes are the mesh's, and its cuts fit the step's
arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.plan import AxisUsedTwice, BadPlanFile, TooManyDims, TooManyWays, UnknownAxis
from shardc.dialects.dist.mesh import Mesh
from shardc.passes.plan.plan import Argument, DimNames, Entry, Plan


def check_plan(plan: Plan, arguments: Sequence[Argument], mesh: Mesh, file: Path | None = None) -> None:
    """Raises AxisUsedTwice, UnknownAxis, TooManyDims or TooManyWays; BadPlanFile for a plan read from
    ``file``.
    """
    known = {argument.key: argument for argument in arguments}
    for (role, name), entry in plan.entries.items():
        argument = known.get(("param", name) if role == "grad" else (role, name))
        if argument is None:
            raise _foreign(file, f"it has an entry for {role} {name!r}, which the step does not have")
        problem = _problem(argument, entry, mesh)
        if problem is not None:
            raise problem if file is None else _foreign(file, _first_line(problem))


def _problem(argument: Argument, entry: Entry, mesh: Mesh) -> ShardcError | None:
    for _, axis, dim in entry.refine:
        if dim >= len(argument.shape):
            return TooManyDims(name=argument.name, given=dim + 1, shape=list(argument.shape))
        if not _has(mesh, axis):
            return _unknown(argument, axis, mesh)
    return None if entry.dims is None else _dims_problem(argument, entry.dims, mesh)


def _dims_problem(argument: Argument, dims: DimNames, mesh: Mesh) -> ShardcError | None:
    if len(dims) != len(argument.shape):
        return TooManyDims(name=argument.name, given=len(dims), shape=list(argument.shape))
    shown = [list(axes) if len(axes) > 1 else next(iter(axes), None) for axes in dims]
    seen: set[str] = set()
    for axis in (axis for axes in dims for axis in axes):
        if not _has(mesh, axis):
            return _unknown(argument, axis, mesh)
        if axis in seen:
            return AxisUsedTwice(name=argument.name, axis=axis, sharding=shown)
        seen.add(axis)
    for dim, axes in enumerate(dims):
        ways = prod(mesh.size(axis) for axis in axes)
        if argument.shape[dim] % ways and argument.shape[dim] < ways:
            size = argument.shape[dim]
            return TooManyWays(dim=dim, name=argument.name, size=size, ways=ways, axes=" x ".join(axes))
    return None


def _has(mesh: Mesh, name: str) -> bool:
    return any(axis.name == name for axis in mesh.axes)


def _unknown(argument: Argument, axis: str, mesh: Mesh) -> UnknownAxis:
    names = [a.name for a in mesh.axes]
    return UnknownAxis(
        what=f"the sharding of {argument.name!r}", axis=axis, known=", ".join(names), suggestion=names[0]
    )


def _foreign(file: Path | None, problem: str) -> BadPlanFile:
    return BadPlanFile(path=file or "the plan", problem=problem)


def _first_line(error: ShardcError) -> str:
    """The message without the error's name."""
    return error.render().splitlines()[0].partition(": ")[2]
