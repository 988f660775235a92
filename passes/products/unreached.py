"""Products that the sequence does not reach, by a quick look that follows factors alone."""

from __future__ import annotations

from math import prod

from shardc.cost.work import flops
from shardc.dialects.dist.interleaving import Parts
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.interleave.spread import Layout, LayoutSpread
from shardc.passes.manager.program import Program
from shardc.passes.propagate.refinement import read_refinements


def unreached_part(program: Program, mesh: Mesh, axes: tuple[str, ...]) -> float:
    """Return the part of all products' operations in products without a dim of the sequence.

    Devices may share some of those over other dims, such as the batch; a trial of the passes tells. 0 if
    ``axes`` split no sequence.
    """
    seeds = _seeds(program, mesh, axes)
    if not seeds:
        return 0.0
    spread = LayoutSpread(program, seeds)
    total = missed = 0.0
    for node in program.nodes:
        work = flops(node.spec)
        total += work
        missed += work if work and not any(map(spread.layout, node.values)) else 0.0
    return missed / total if total else 0.0


def _seeds(program: Program, mesh: Mesh, axes: tuple[str, ...]) -> dict[int, Layout]:
    """Return the dims that ``axes`` split in inputs, and in results that the plan refines."""
    codec = ShardingCodec(program.module.context, mesh)
    found: dict[int, Layout] = {}

    def add(value: int, dim: int, ways: int) -> None:
        size = program.types[value].shape[dim]
        found.setdefault(value, {})[dim] = Parts(ways if size % ways == 0 else 1, (size,))

    for position, value in enumerate(program.arguments):
        for dim, split in enumerate(program.annotated(position, codec).dims):
            if any(a.name in axes for a in split):
                add(value, dim, prod(a.size for a in split if a.name in axes))
    for refined in read_refinements(program):
        if refined.axis in axes and refined.dim >= 0:
            add(refined.value, refined.dim, mesh.size(refined.axis))
    return found
