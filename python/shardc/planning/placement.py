"""Where a plan puts each argument of a step: which slice each rank holds, on which stages, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.torch.description import describe_program, edges
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.comm.mesh import Mesh


@dataclass(frozen=True)
class PlacedArgument:
    """One argument. ``why``: what its sharding follows from. ``stages``: of a pipeline, that hold it."""

    leaf: Leaf
    why: str
    stages: tuple[int, ...] = ()


@dataclass(frozen=True)
class ArgumentPlacement:
    """All arguments of a step on a mesh."""

    mesh: Mesh
    arguments: Sequence[PlacedArgument]


def placement_of(whole: ir.Module, module: ir.Module) -> ArgumentPlacement:
    """Of a plan's module of level 3 before a pipeline is cut (``whole``), and after."""
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
