"""Every source and target layout of small tensors: planned, then executed on the ranks' blocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import fields
from math import prod

import pytest
import torch

from shardc.backends.eager import collectives
from shardc.backends.eager.collectives import Values, gather, scatter
from shardc.cost.cluster.mapping import Placement
from shardc.cost.cluster.names import find_cluster
from shardc.cost.collective import KINDS
from shardc.cost.links import UNIFORM, LinkModel
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.dialects.dist.reshard_steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    ToPartial,
)
from shardc.dialects.dist.sharding import REDUCTIONS, Axes, Sharding
from shardc.passes.partition.reshard_plan import plan_reshard

SQUARE = Mesh((MeshAxis("x", 2), MeshAxis("y", 2)))
CUBE = Mesh((MeshAxis("x", 2), MeshAxis("y", 2), MeshAxis("z", 2)))
OBLONG = Mesh((MeshAxis("x", 4), MeshAxis("y", 2)))
X, Y, Z = (CUBE.whole(name) for name in "xyz")
HALVES = (Axis("x", 1, 2), Axis("x", 2, 2))

CUBE_3_PARTS = 6
"""Tests that share the pairs of rank 3 on the cube, so that pytest's workers can."""


def slice_block(values: Values, mesh: Mesh, dim: int, axes: Axes) -> list[torch.Tensor]:
    """Each rank's block along ``dim``, by its index over ``axes``."""
    ways = prod(a.size for a in axes)
    assert all(value.shape[dim] % ways == 0 for value in values)
    return [value.chunk(ways, dim)[mesh.index(rank, axes)] for rank, value in enumerate(values)]


def to_partial(values: Values, mesh: Mesh, axes: Axes, reduction: str) -> list[torch.Tensor]:
    """Terms that combine to ``values``; those of a maximum or minimum are the same on all ranks."""
    return collectives.to_partial(values, mesh, axes) if reduction == "sum" else list(values)


WORK: dict[type[Step], Callable[..., list[torch.Tensor]]] = {
    AllReduce: collectives.all_reduce,
    AllGather: collectives.all_gather,
    ReduceScatter: collectives.reduce_scatter,
    AllToAll: collectives.all_to_all,
    Permute: collectives.permute,
    Slice: slice_block,
    ToPartial: to_partial,
}
"""What runs a step, whose fields are its last arguments."""


def apply_steps(values: Values, steps: Iterable[Step], mesh: Mesh) -> list[torch.Tensor]:
    """The blocks after a chain of reshard steps."""
    for step in steps:
        values = WORK[type(step)](values, mesh, *(getattr(step, field.name) for field in fields(step)))
    return list(values)


def all_layouts(axes: tuple[Axis, ...], rank: int, reductions: tuple[str, ...] = ("sum",)) -> list[Sharding]:
    """Every way to leave out each axis, put it on a dim (in every order), or make the value partial over it.

    All partial terms of a layout have one of ``reductions``: two at once are not a legal sharding.
    """
    found: dict[Sharding, None] = {}
    for places in itertools.product(range(rank + 2), repeat=len(axes)):
        on = [[a for a, place in zip(axes, places, strict=True) if place == d] for d in range(rank + 1)]
        for dims in itertools.product(*(itertools.permutations(group) for group in on[:rank])):
            for reduction in reductions:
                terms = tuple((reduction, axis) for axis in on[rank])
                found[Sharding(tuple(dims)).with_partial(terms).normal()] = None
    return list(found)


def blocks_of(whole: torch.Tensor, sharding: Sharding, mesh: Mesh, seed: int = 0) -> list[torch.Tensor]:
    """The ranks' blocks of an integer tensor, its partial terms random but for what they combine to."""
    axes = tuple(axis for _, axis in sharding.partial)
    count = prod(axis.size for axis in axes)
    terms = torch.randint(-99, 99, (count, *whole.shape), generator=torch.Generator().manual_seed(seed))
    match sharding.partial[0][0] if sharding.partial else "sum":
        case "sum":
            terms[-1] += whole - terms.sum(0)
        case "max":
            terms += whole - terms.amax(0)
        case "min":
            terms += whole - terms.amin(0)
    cut = [scatter(term, sharding.without_partial(), mesh) for term in terms]
    return [cut[mesh.index(rank, axes)][rank] for rank in range(mesh.world_size)]


def _check_by_execution(
    pairs: list[tuple[Sharding, Sharding]],
    shape: tuple[int, ...],
    mesh: Mesh,
    links: LinkModel = UNIFORM,
    element_bytes: int = 1,
) -> None:
    # Of both signs, so that a zero in a term is neither a neutral maximum nor a neutral minimum.
    whole = torch.arange(prod(shape)).reshape(shape) - prod(shape) // 2
    blocks = {source: blocks_of(whole, source, mesh) for source in {source for source, _ in pairs}}
    for source, target in pairs:
        steps = plan_reshard(source, target, shape, mesh, links=links, element_bytes=element_bytes)
        layout = source
        for step in steps:
            layout = step.apply(layout)
        assert layout.normal() == target.normal(), f"{source} to {target}: {steps}"
        moved = apply_steps(blocks[source], steps, mesh)
        assert torch.equal(gather(moved, target, mesh, shape), whole), f"{source} to {target}: {steps}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "axes", "rank", "reductions", "count"),
    [
        (SQUARE, (X, Y), 2, REDUCTIONS, 32),
        (SQUARE, (X, Y), 3, REDUCTIONS, 46),
        (CUBE, (X, Y, Z), 2, ("sum", "max"), 135),
        (OBLONG, (*HALVES, Y), 2, ("sum",), 92),
    ],
    ids=["square-2", "square-3", "cube-2", "sub-axes-2"],
)
def test_every_pair_of_layouts(
    mesh: Mesh, axes: tuple[Axis, ...], rank: int, reductions: tuple[str, ...], count: int
) -> None:
    """All ``count * count`` pairs (1,024, 2,116, 18,225 and 8,464), partial terms on both sides included.

    The two sides' reductions may differ. Minima are left to the squares: nothing tells them from maxima but
    the operator that combines them.
    """
    layouts = all_layouts(axes, rank, reductions)
    assert len(layouts) == count
    _check_by_execution([(a, b) for a in layouts for b in layouts], (8,) * rank, mesh)


def _moved(step: Permute) -> Axes:
    """The axes that a permute puts elsewhere."""
    sides = [(*layout.dims, tuple(a for _, a in layout.partial)) for layout in (step.source, step.target)]
    return tuple({axis for old, new in zip(*sides, strict=True) if old != new for axis in old + new})


def _seconds(
    steps: Iterable[Step], source: Sharding, shape: tuple[int, ...], links: LinkModel, element_bytes: int
) -> float:
    """Seconds of the collectives of a chain over links."""
    layout, total_s = source, 0.0
    for step in steps:
        if type(step) in KINDS:
            axes = _moved(step) if isinstance(step, Permute) else step.axes
            size = prod(layout.local_shape(shape)) * element_bytes
            total_s += links.seconds(KINDS[type(step)], axes, prod(a.size for a in axes), size)
        layout = step.apply(layout)
    return total_s


@pytest.mark.parametrize("element_bytes", [1, 1 << 30], ids=["short", "long"])
def test_every_pair_of_layouts_on_the_links_of_a_cluster(element_bytes: int) -> None:
    """Chains that two nodes of two devices make cheap are as right as those that send the fewest bytes."""
    layouts = all_layouts((X, Y), 2, ("sum",))
    links = LinkModel(Placement.of(find_cluster("h100-2x2"), {"x": 2, "y": 2}))
    pairs = [(a, b) for a in layouts for b in layouts]
    usual = [plan_reshard(a, b, (8, 8), SQUARE) for a, b in pairs]
    here = [plan_reshard(a, b, (8, 8), SQUARE, links=links, element_bytes=element_bytes) for a, b in pairs]
    assert usual != here
    for (source, _), one, other in zip(pairs, usual, here, strict=True):
        taken_s = [_seconds(steps, source, (8, 8), links, element_bytes) for steps in (one, other)]
        assert taken_s[1] <= taken_s[0] * (1 + 1e-6), (source, one, other)
    _check_by_execution(pairs, (8, 8), SQUARE, links, element_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(CUBE_3_PARTS))
def test_every_pair_of_layouts_of_rank_3_on_a_cube(part: int) -> None:
    """The parts together: all 246 * 246 = 60,516 pairs of 106 whole layouts, 70 with partial sums, 70 with
    maxima.
    """
    layouts = all_layouts((X, Y, Z), 3, ("sum", "max"))
    assert len(layouts) == 246
    _check_by_execution([(a, b) for a in layouts[part::CUBE_3_PARTS] for b in layouts], (8, 8, 8), CUBE)


@pytest.mark.slow
def test_sub_axes_of_both_axes_sampled() -> None:
    """500 of the pairs of rank-3 layouts over the four halves of a 4 x 4 mesh."""
    mesh = Mesh((MeshAxis("x", 4), MeshAxis("y", 4)))
    layouts = all_layouts((*HALVES, Axis("y", 1, 2), Axis("y", 2, 2)), 3)
    rng = random.Random(0)
    pairs = [(rng.choice(layouts), rng.choice(layouts)) for _ in range(500)]
    _check_by_execution(pairs, (16, 16, 16), mesh)


@pytest.mark.slow
def test_dims_with_little_room() -> None:
    """Chains through layouts that do not divide the shape are not taken."""
    layouts = [s for s in all_layouts((X, Y, Z), 2) if s.divides((2, 4))]
    _check_by_execution([(a, b) for a in layouts for b in layouts], (2, 4), CUBE)


def test_axes_that_cut_each_other() -> None:
    """Halves and thirds of an axis of 6 have no common refinement: gather, then slice."""
    mesh = Mesh((MeshAxis("x", 6),))
    parts = ((1, 2), (1, 3), (2, 3), (3, 2), (1, 6))
    layouts = [Sharding(((Axis("x", pre, size),), ())) for pre, size in parts]
    layouts += [
        Sharding(((), ())).with_partial((("sum", Axis("x", 1, 2)),)),
        Sharding(((), (Axis("x", 1, 3),))),
    ]
    _check_by_execution([(a, b) for a in layouts for b in layouts], (6, 6), mesh)
