"""``dist-share-products``: splits products that every device would otherwise compute in full."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.dist.interleaving import Parts
from shardc.dialects.dist.mesh import read_mesh
from shardc.passes.interleave.spread import LayoutSpread
from shardc.passes.manager.attributes import SEQUENCE_AXES, phase_of
from shardc.passes.manager.program import Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.products.dims import Candidate, best_dim
from shardc.passes.products.repeated import Repeated, find_repeated
from shardc.passes.products.unreached import unreached_part
from shardc.passes.propagate.refinement import refinement_attribute

LEAST_PART = 0.01
"""Least part of a step's operations that is worth splitting: smaller products cost more to exchange."""


@dataclass(frozen=True)
class DistShareProducts(ReadingPass):
    """Splits products without a factor of the sequence along another dim of their results.

    Under ``context`` the sequence is split. Products of other rows, such as relative positions, latents that
    attend to the sequence, or rows sorted by expert, do not have it, so that each device would compute them
    all. The pass refines their results (round 0) along a dim that devices divide. Propagation carries the
    split to what the products read and to what reads them. A trial of the passes that follow tells which
    products those are.
    """

    name: ClassVar[str] = "dist-share-products"

    def apply(self, reading: Reading) -> bool:
        mesh, program = read_mesh(reading.module), reading.program
        if mesh is None or program is None or SEQUENCE_AXES not in program.function.attributes:
            return False
        axes = tuple(a.value for a in ir.ArrayAttr(program.function.attributes[SEQUENCE_AXES]))
        del program.function.attributes[SEQUENCE_AXES]
        if unreached_part(program, mesh, axes) < LEAST_PART:
            return False
        repeated, total = find_repeated(program, mesh, axes)
        if sum(product.flops for product in repeated) < LEAST_PART * total:
            return False
        spread = LayoutSpread(program)
        for product in repeated:
            node, blocks = program.nodes[product.node], prod(mesh.size(axis) for axis in product.axes)
            if phase_of(node.op) not in ("", "forward") or any(map(spread.layout, node.values)):
                continue  # the backward follows the activations
            chosen = best_dim(program, product, blocks)
            if chosen is not None:
                _refine(program, product, chosen)
                spread.add({chosen.value: {chosen.dim: Parts(blocks, (chosen.size,))}})
        return False


def _refine(program: Program, product: Repeated, chosen: Candidate) -> None:
    node = program.nodes[program.producer[chosen.value]]
    new = refinement_attribute(node.op.context, [(0, axis, chosen.dim) for axis in product.axes])
    given = node.op.attributes.get("dist.refine")
    entries = [*ir.ArrayAttr(given), *new] if given is not None else [*new]
    node.op.attributes["dist.refine"] = ir.ArrayAttr.get(entries, node.op.context)
