"""Which part of a pipeline's program and state is a rank's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .check import Json
from .comm.layout import Leaf
from .comm.mesh import Axis, Mesh


@dataclass(frozen=True)
class Part:
    """``number`` is that of the rank's function; ``axis`` the pipeline's, None of a program without one."""

    number: int
    arguments: list[Leaf]
    axis: Axis | None = None


def part_of(pipeline: Sequence[Json], leaves: Sequence[Leaf], mesh: Mesh, rank: int) -> Part:
    """Return what ``rank`` runs and takes. ``pipeline`` is the manifest's: empty, or of one entry."""
    if not pipeline:
        return Part(0, list(leaves))
    (entry,) = pipeline
    axis = next((name, 1, size) for name, size in mesh.space if name == entry["name"])
    number = mesh.coordinate(rank, axis)
    named = {(leaf.role, leaf.name): leaf for leaf in leaves}
    return Part(number, [named[role, name] for role, name in entry["arguments"][number]], axis)
