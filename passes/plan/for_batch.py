"""A step's plan for a batch of other sizes: all but the batch is sharded as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from shardc.dialects.dist.mesh import Mesh
from shardc.passes.plan.plan import Argument, Plan


def for_batch(plan: Plan, arguments: Sequence[Argument], mesh: Mesh) -> Plan:
    """The plan, where a dim of an input that has fewer elements than ways stays whole along the minor axes.

    So a last batch of one row runs on four ranks: each computes all of it.
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
    """As many axes, the most major first, as cut ``size`` elements into blocks of one or more."""
    for count in range(len(axes), 0, -1):
        if prod(mesh.size(axis) for axis in axes[:count]) <= size:
            return axes[:count]
    return ()
