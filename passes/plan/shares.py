"""Unequal shares of a mesh axis: batches that are split over it are split into these shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardc.diagnostics.passes.shares import (
    ShareBesideOther,
    SharesOfNoBatch,
    SharesUnsupported,
    ShareWithoutRows,
)
from shardc.dialects.dist.axis import shared_axis
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.passes.plan.plan import Argument, Entry, Key, Plan


def share_out(plan: Plan, inputs: Sequence[Argument], mesh: Mesh) -> None:
    """Replace an axis with shares by its time axis in the plan's splits of inputs.

    Raises SharesOfNoBatch, SharesUnsupported, ShareBesideOther, ShareWithoutRows.
    """
    for share in mesh.shares.values():
        axis, cut = shared_axis(share.name), False
        if any(_has_experts(key, entry, axis) for key, entry in plan.entries.items()):
            instead = "give experts an axis of their own, or the batch's axis equal shares"
            raise SharesUnsupported(axis=axis, other="experts along it", instead=instead)
        for argument in inputs:
            entry = plan.entries.get(argument.key)
            named = {name for axes in (entry and entry.dims) or () for name in axes}
            if entry is None or entry.dims is None or not named & {axis, share.name}:
                continue
            cut = True
            dims = tuple(tuple(share.name if a == axis else a for a in axes) for axes in entry.dims)
            _check_rows(argument, dims, share)
            plan.entries[argument.key] = replace(entry, dims=dims)
        if not cut:
            raise SharesOfNoBatch(axis=axis, plan=plan.text)


def _has_experts(key: Key, entry: Entry, axis: str) -> bool:
    """Return whether an entry splits weights of experts over an axis."""
    names = {name for axes in entry.dims or () for name in axes}
    return key[0] == "param" and axis in names and entry.why in ("expert", "experts")


def _check_rows(argument: Argument, dims: tuple[tuple[str, ...], ...], share: MeshAxis) -> None:
    """Check that only dim 0 is split into the shares, and that every share has rows. Raises the errors
    above.
    """
    axis = shared_axis(share.name)
    for dim, axes in enumerate(dims):
        if share.name in axes and (dim or len(axes) > 1):
            others = ", ".join(a for a in axes if a != share.name) or f"dim {dim}"
            raise ShareBesideOther(name=argument.name, axis=axis, others=others)
    rows = argument.shape[0]
    held = -(-rows // share.size)  # rows of an iteration; padding is at the end
    if rows <= held * (share.size - share.trips[-1]):
        nearest = ":".join(map(str, apportioned(rows, share.trips)))
        shown = ":".join(map(str, share.trips))
        raise ShareWithoutRows(name=argument.name, rows=rows, axis=axis, shares=shown, nearest=nearest)


def apportioned(rows: int, weights: Sequence[int]) -> list[int]:
    """Divide rows by weight, at least one each, by largest remainders; all ones if there are too few rows."""
    spare, total = rows - len(weights), sum(weights)
    if spare < 0:
        return [1] * len(weights)
    exact = [spare * weight / total for weight in weights]
    found = [int(part) for part in exact]
    order = sorted(range(len(weights)), key=lambda i: found[i] - exact[i])
    for i in order[: spare - sum(found)]:
        found[i] += 1
    return [1 + part for part in found]
