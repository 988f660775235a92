"""Every source and target layout of small tensors: planned, then executed on the ranks' blocks."""

from __future__ import annotations

import itertools
import random
from math import prod

import pytest
import torch

from shardc.backends.eager.collectives import apply_steps, gather, scatter
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.dialects.dist.sharding import Sharding
from shardc.passes.partition.reshard_plan import plan_reshard

SQUARE = Mesh((MeshAxis("x", 2), MeshAxis("y", 2)))
CUBE = Mesh((MeshAxis("x", 2), MeshAxis("y", 2), MeshAxis("z", 2)))
OBLONG = Mesh((MeshAxis("x", 4), MeshAxis("y", 2)))
X, Y, Z = (CUBE.whole(name) for name in "xyz")
HALVES = (Axis("x", 1, 2), Axis("x", 2, 2))


def all_layouts(axes: tuple[Axis, ...], rank: int) -> list[Sharding]:
    """Every way to leave out each axis, put it on a dim (in every order), or make the value partial over it."""
    found: dict[Sharding, None] = {}
    for places in itertools.product(range(rank + 2), repeat=len(axes)):
        on = [[a for a, place in zip(axes, places, strict=True) if place == d] for d in range(rank + 1)]
        terms = tuple(("sum", axis) for axis in on[rank])
        for dims in itertools.product(*(itertools.permutations(group) for group in on[:rank])):
            found[Sharding(tuple(dims)).with_partial(terms).normal()] = None
    return list(found)


def blocks_of(whole: torch.Tensor, sharding: Sharding, mesh: Mesh, seed: int = 0) -> list[torch.Tensor]:
    """The ranks' blocks of an integer tensor, its partial sums made of random terms."""
    axes = tuple(axis for _, axis in sharding.partial)
    count = 1 + max((mesh.index(r, axes) for r in range(mesh.world_size)), default=0)
    generator = torch.Generator().manual_seed(seed)
    terms = [torch.randint(-99, 99, whole.shape, generator=generator) for _ in range(count - 1)]
    terms.append(whole - sum(terms, torch.zeros_like(whole)))
    cut = [scatter(term, sharding.without_partial(), mesh) for term in terms]
    return [cut[mesh.index(rank, axes)][rank] for rank in range(mesh.world_size)]


def _check_by_execution(pairs: list[tuple[Sharding, Sharding]], shape: tuple[int, ...], mesh: Mesh) -> None:
    whole = torch.arange(prod(shape)).reshape(shape)
    blocks = {source: blocks_of(whole, source, mesh) for source, _ in pairs}
    for source, target in pairs:
        steps = plan_reshard(source, target, shape, mesh)
        layout = source
        for step in steps:
            layout = step.apply(layout)
        assert layout.normal() == target.normal(), f"{source} to {target}: {steps}"
        moved = apply_steps(blocks[source], steps, mesh)
        assert torch.equal(gather(moved, target, mesh, shape), whole), f"{source} to {target}: {steps}"


@pytest.mark.parametrize(
    ("mesh", "axes", "rank", "count"),
    [
        (SQUARE, (X, Y), 2, 18),
        (SQUARE, (X, Y), 3, 28),
        (CUBE, (X, Y, Z), 2, 92),
        (OBLONG, (*HALVES, Y), 2, 92),
    ],
    ids=["square-2", "square-3", "cube-2", "sub-axes-2"],
)
def test_every_pair_of_layouts(mesh: Mesh, axes: tuple[Axis, ...], rank: int, count: int) -> None:
    """All ``count * count`` pairs, partial sums on both sides included."""
    layouts = all_layouts(axes, rank)
    assert len(layouts) == count
    _check_by_execution([(a, b) for a in layouts for b in layouts], (8,) * rank, mesh)


def test_every_pair_of_layouts_of_rank_3_on_a_cube() -> None:
    """All 176 sources, partial sums included, to all 106 whole targets; of the partial targets 2,000 pairs."""
    layouts = all_layouts((X, Y, Z), 3)
    whole = [s for s in layouts if not s.partial]
    assert (len(layouts), len(whole)) == (176, 106)
    partial = [(a, b) for a in layouts for b in layouts if b.partial]
    pairs = [(a, b) for a in layouts for b in whole] + random.Random(0).sample(partial, 2000)
    _check_by_execution(pairs, (8, 8, 8), CUBE)


def test_sub_axes_of_both_axes_sampled() -> None:
    """500 of the pairs of rank-3 layouts over the four halves of a 4 x 4 mesh."""
    mesh = Mesh((MeshAxis("x", 4), MeshAxis("y", 4)))
    layouts = all_layouts((*HALVES, Axis("y", 1, 2), Axis("y", 2, 2)), 3)
    rng = random.Random(0)
    pairs = [(rng.choice(layouts), rng.choice(layouts)) for _ in range(500)]
    _check_by_execution(pairs, (16, 16, 16), mesh)


def test_dims_with_little_room() -> None:
    """Chains through layouts that do not divide the shape are not taken."""
    layouts = [s for s in all_layouts((X, Y, Z), 2) if s.divides((2, 4))]
    _check_by_execution([(a, b) for a in layouts for b in layouts], (2, 4), CUBE)


def test_axes_that_cut_each_other() -> None:
    """Halves and thirds of an axis of 6 have no common refinement: gather, then slice."""
    mesh = Mesh((MeshAxis("x", 6),))
    parts = ((1, 2), (1, 3), (2, 3), (3, 2), (1, 6))
    layouts = [Sharding(((Axis("x", pre, size),), ())) for pre, size in parts]
    layouts += [Sharding(((), ())).with_partial((("sum", Axis("x", 1, 2)),)), Sharding(((), (Axis("x", 1, 3),)))]
    _check_by_execution([(a, b) for a in layouts for b in layouts], (6, 6), mesh)
