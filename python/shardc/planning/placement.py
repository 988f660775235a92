"""Placement of a step's arguments under a plan: each rank's slice, the stages, and the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.torch.description import describe_program, edges
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.comm.mesh import Mesh


@dataclass(frozen=True)
class PlacedArgument:
    """Placement of one argument. ``why``: the origin of its sharding. ``stages``: pipeline stages with it."""

    leaf: Leaf
    why: str
    stages: tuple[int, ...] = ()


@dataclass(frozen=True)
class ArgumentPlacement:
    """Placement of all arguments of a step on a mesh."""

    mesh: Mesh
    arguments: Sequence[PlacedArgument]


def placement_of(whole: ir.Module, module: ir.Module) -> ArgumentPlacement:
    """Return the placement in a level 3 module. ``whole``: the module before it is cut into stages."""
    axes, entries, whys = edges(whole)
    pipeline = describe_program(module)["pipeline"]
    stages: dict[tuple[str, str], tuple[int, ...]] = {}
    for entry in pipeline:
        for number, keys in enumerate(entry["arguments"]):
            for role, name in keys:
                stages[role, name] = (*stages.get((role, name), ()), number)
    leaves = map(Leaf.read, entries)
    placed = [
        PlacedArgument(x, w, stages.get((x.role, x.name), ())) for x, w in zip(leaves, whys, strict=True)
    ]
    return ArgumentPlacement(Mesh.read(axes), placed)
