"""A step's plan for a batch of another size; shardings of all other arguments stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from shardc.dialects.dist.mesh import Mesh
from shardc.passes.plan.plan import Argument, Plan


def for_batch(plan: Plan, arguments: Sequence[Argument], mesh: Mesh) -> Plan:
    """Return the plan in which a dim of an input with fewer elements than ways stays whole along minor axes.

    So a last batch of one row runs on four ranks, and each computes all of it.
    """
    shapes = {argument.key: argument.shape for argument in arguments if argument.role == "input"}
    entries = dict(plan.entries)
    for key, entry in plan.entries.items():
        shape = shapes.get(key, ())
        if entry.dims is not None and len(entry.dims) == len(shape):
            dims = tuple(_fitting(axes, size, mesh) for axes, size in zip(entry.dims, shape, strict=True))
            entries[key] = replace(entry, dims=dims)
    return Plan(plan.text, entries, plan.pipeline, plan.attention)


def _fitting(axes: tuple[str, ...], size: int, mesh: Mesh) -> tuple[str, ...]:
    """Return as many of the most major axes as split ``size`` elements into blocks of at least one."""
    for count in range(len(axes), 0, -1):
        if prod(mesh.size(axis) for axis in axes[:count]) <= size:
            return axes[:count]
    return ()
