"""``dist.permute``: each device hands its block to another. Level 3."""

from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.dist.verifier import Illegal, Op, Operand, Result, Site


class PermuteOp(Op, dialect=Dist, name="permute", traits=[ext.Pure]):
    """Gives each device the block and partial term that ``target`` assigns to it, from a device that holds it
    under ``source``.

    Both shardings split each dim into the same number of blocks, over other axes or in another order.
    :func:`senders` says which device sends to which.

    ``%1 = "dist.permute"(%0) {source = #dist.sharding<@mesh, [["x", "y"]], []>,
    target = #dist.sharding<@mesh, [["y", "x"]], []>}
    : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>``
    """

    x: Operand
    source: ShardingAttr
    target: ShardingAttr
    out: Result

    def check(self, site: Site) -> None:
        type_ = site.operand()
        site.expect_result(type_, "a permute keeps the local shape")
        rank = len(type_.shape)
        source, target = (site.sharding(name, rank, allow_time=False) for name in ("source", "target"))
        if problem := permute_problem(source, target):
            raise Illegal(problem)


def permute_problem(source: Sharding, target: Sharding) -> str | None:
    """Return why no permutation of devices leads from one layout to the other, or None."""
    for dim in range(len(source.dims)):
        if source.ways(dim) != target.ways(dim):
            return f"can't cut dim {dim} into {target.ways(dim)} blocks: source has {source.ways(dim)}"
    if _terms(source) != _terms(target):
        return f"can't make {_terms(target) or 'no'} partial terms of {_terms(source) or 'no'}"
    return None


def _terms(sharding: Sharding) -> dict[str, int]:
    """Return, for each reduction, the number of terms that are still to be combined."""
    terms: dict[str, int] = {}
    for reduction, axis in sharding.partial:
        terms[reduction] = terms.get(reduction, 1) * axis.size
    return terms


def senders(source: Sharding, target: Sharding, mesh: Mesh) -> tuple[int, ...]:
    """Return, for each rank, the rank that sends it its block. A rank keeps its own block where it can."""
    have = _ranks_by_block(source, mesh)
    want = _ranks_by_block(target, mesh)
    sender = list(range(mesh.world_size))
    for block, takers in want.items():
        givers = have[block]
        free = [r for r in givers if r not in takers]
        for taker in takers:
            if taker not in givers:
                sender[taker] = free.pop(0)
    return tuple(sender)


def _ranks_by_block(sharding: Sharding, mesh: Mesh) -> dict[tuple[int, ...], list[int]]:
    """Map each block and term to its ranks; the key is its index in every dim, then in the partial terms."""
    axes = (*sharding.dims, tuple(axis for _, axis in sharding.partial))
    ranks: dict[tuple[int, ...], list[int]] = {}
    for rank in range(mesh.world_size):
        ranks.setdefault(tuple(mesh.index(rank, a) for a in axes), []).append(rank)
    return ranks


def permute(
    x: ir.Value, source: Sharding, target: Sharding, codec: ShardingCodec, **at: Unpack[At]
) -> ir.Value:
    return PermuteOp(x, codec.write(source.closed()), codec.write(target.closed()), x.type, **at).out
