"""Plans that a user writes: a mapping from name patterns to shardings."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from shardc.diagnostics.plan import (
    AxisUsedTwice,
    BadShardingEntry,
    PatternMatchesNothing,
    TooManyDims,
    TooManyWays,
    UnknownAxis,
)
from shardc.dialects.dist.mesh import Mesh
from shardc.passes.plan.plan import Argument, DimNames, Plan
from shardc.passes.plan.presets import Setting, close_inputs

PLANNED_ROLES = ("param", "input", "opt_state", "buffer")


def read_patterns(patterns: Mapping[str, Sequence[Any]], arguments: Sequence[Argument], mesh: Mesh) -> Plan:
    """The plan of ``{"*.q_proj.weight": ["tensor", None], "input_ids": ["data"]}``.

    Patterns are shell-style (``*``, ``?``, ``[...]``) and match parameters, inputs and buffers by name, and
    optimizer state (``w/exp_avg``) if they have a slash; optimizer state that nobody names lies as its
    parameter does. A matching argument is closed: propagation adds nothing to it. The first pattern that
    matches counts. Time axes cut the batch dim of every input, whether the mapping says so or not.
    """
    plan = Plan("mapping")
    planned = [a for a in arguments if a.role in PLANNED_ROLES]
    for pattern, entries in patterns.items():
        matches = [
            a for a in planned if fnmatchcase(a.name, pattern) and (a.role != "opt_state" or "/" in pattern)
        ]
        if not matches:
            names = [a.name for a in planned if a.role != "opt_state" or "/" in pattern]
            nearest = difflib.get_close_matches(pattern, names, n=3, cutoff=0.2) or names[:3]
            raise PatternMatchesNothing(pattern=pattern, nearest=", ".join(nearest))
        for argument in matches:
            if argument.key not in plan.entries:
                plan.say(
                    argument.key, read_dims(argument, entries, mesh), closed=True, why=f"pattern {pattern}"
                )
    close_inputs(plan, Setting(arguments, mesh, {}))
    return plan


def read_dims(argument: Argument, entries: Sequence[Any], mesh: Mesh) -> DimNames:
    """One sharding as the user wrote it, checked against the argument's shape and the mesh."""
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise BadShardingEntry(name=argument.name, entry=entries)
    if len(entries) > len(argument.shape):
        raise TooManyDims(name=argument.name, given=len(entries), shape=list(argument.shape))
    dims = [_axes(argument, entry, mesh) for entry in entries]
    dims += [()] * (len(argument.shape) - len(dims))
    seen: set[str] = set()
    for axes in dims:
        for axis in axes:
            if axis in seen:
                raise AxisUsedTwice(name=argument.name, axis=axis, sharding=list(entries))
            seen.add(axis)
    for dim, axes in enumerate(dims):
        ways = prod(mesh.size(a) for a in axes)
        if argument.shape[dim] % ways and argument.shape[dim] < ways:
            raise TooManyWays(
                dim=dim, name=argument.name, size=argument.shape[dim], ways=ways, axes=" x ".join(axes)
            )
    return tuple(dims)


def _axes(argument: Argument, entry: Any, mesh: Mesh) -> tuple[str, ...]:
    axes = (
        ()
        if entry is None
        else (entry,)
        if isinstance(entry, str)
        else tuple(entry)
        if isinstance(entry, list | tuple)
        else None
    )
    if axes is None or not all(isinstance(a, str) for a in axes):
        raise BadShardingEntry(name=argument.name, entry=entry)
    known = [a.name for a in mesh.axes]
    for axis in axes:
        if axis not in known:
            nearest = difflib.get_close_matches(axis, known, n=1, cutoff=0.0) or known
            raise UnknownAxis(
                what=f"the sharding of {argument.name!r}",
                axis=axis,
                known=", ".join(known),
                suggestion=nearest[0] if nearest else "add the axis to the mesh",
            )
    return axes
