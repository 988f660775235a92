"""Which steps lead from one layout of a value to another, at the least cost.

    plan_reshard(partial over "tensor", dim 0 on "tensor", ...)  ->  (ReduceScatter(0, (tensor,), "sum"),)

Only axes over devices take part: a time axis is entered and left by loops.
"""

from __future__ import annotations

from functools import lru_cache

from shardc.cost.links import UNIFORM, LinkModel
from shardc.diagnostics.sharding import IndivisibleDim
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.reshard_steps import Step
from shardc.dialects.dist.sharding import Sharding
from shardc.passes.partition.reshard_search import ReshardSearch


def plan_reshard(
    source: Sharding,
    target: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    *,
    links: LinkModel = UNIFORM,
    element_bytes: int = 1,
    where: str | None = None,
) -> tuple[Step, ...]:
    """The cheapest chain of steps from ``source`` to ``target``, for a tensor of global ``shape``.

    Cheapest by the seconds that ``links`` give, then by the number of steps. ``element_bytes`` matters only
    where links have a latency. ``where`` is the user's source line, for errors.

    Raises IndivisibleDim if a layout does not cut the shape into equal blocks. Both must be legal on ``mesh``
    (see ``check_sharding``) and free of time axes; ValueError otherwise.
    """
    for sharding in (source, target):
        _check_divides(sharding, shape, where)
    return _plan(source, target, shape, mesh, links, element_bytes)


@lru_cache(maxsize=65536)
def _plan(
    source: Sharding,
    target: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    links: LinkModel,
    element_bytes: int,
) -> tuple[Step, ...]:
    for axis in source.used + target.used:
        if mesh.is_time(axis):
            raise ValueError(f"{axis.name!r} is a time axis; reshards go over devices")
    source, target = source.normal(), target.normal()
    if source == target:
        return ()
    return ReshardSearch(source, target, shape, element_bytes, links).run()


def _check_divides(sharding: Sharding, shape: tuple[int, ...], where: str | None) -> None:
    for dim, size in enumerate(shape):
        ways = sharding.ways(dim)
        if size % ways:
            raise IndivisibleDim(
                dim=dim, size=size, shape=list(shape), ways=ways, sharding=sharding, where=where
            )
