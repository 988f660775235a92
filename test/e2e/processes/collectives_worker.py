"""Every collective on every group of a 4-rank mesh, against the same computed from all ranks'
blocks at once.
"""

from __future__ import annotations

from itertools import product

import torch
from rank_main import run

from shardc.runtime.comm.collectives import Rank
from shardc.runtime.comm.connect import connect
from shardc.runtime.comm.direct import PART_BYTES, DirectGroup
from shardc.runtime.comm.groups import Group, Groups
from shardc.runtime.comm.mesh import Mesh, ways

DATA, TENSOR = ("data", 1, 2), ("tensor", 1, 2)
MAJOR, MINOR = ("x", 1, 2), ("x", 2, 2)
MESHES = {
    Mesh((("data", 2), ("tensor", 2))): [(DATA,), (TENSOR,), (DATA, TENSOR), (TENSOR, DATA)],
    Mesh((("x", 4),)): [(MAJOR,), (MINOR,), (("x", 1, 4),), (MAJOR, MINOR), (MINOR, MAJOR)],
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
SHAPE = (4, 8, 4)


def block(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    """A rank's block: small integers, exact in every dtype, and every second time with its dims
    turned round.
    """
    values = torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(rank))
    made = (values > 2) if dtype == torch.bool else values.to(dtype)
    return made.movedim(0, -1).contiguous().movedim(-1, 0) if rank % 2 else made


def same(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert got.dtype == expected.dtype and got.shape == expected.shape, f"{what}: {got.dtype} {got.shape}"
    assert torch.equal(got, expected), f"{what}: differs"


def reduce(blocks: list[torch.Tensor], reduction: str) -> torch.Tensor:
    stacked = torch.stack(blocks)
    if stacked.dtype == torch.bool:
        return stacked.all(0) if reduction == "min" else stacked.any(0)
    return {"sum": lambda: stacked.sum(0), "max": lambda: stacked.amax(0), "min": lambda: stacked.amin(0)}[
        reduction
    ]()


def check_group(rank: Rank, axes: tuple, dtype: torch.dtype) -> None:
    members = next(p for p in rank.mesh.partition(axes) if rank.number in p)
    place, size = members.index(rank.number), ways(axes)
    blocks = [block(r, dtype) for r in members]
    mine = blocks[place]
    before = mine.clone()
    what = f"{rank.mesh.describe()} {axes} {dtype}"
    for reduction in ("sum",) if dtype.is_complex else ("sum", "max", "min"):
        whole = reduce(blocks, reduction)
        same(
            rank.all_reduce(mine, axes=axes, reduction=reduction).wait(),
            whole,
            f"all_reduce {reduction} {what}",
        )
        own = mine.clone()
        same(rank.all_reduce(own, axes=axes, reduction=reduction, reuse=True).wait(), whole, f"reuse {what}")
        for dim in range(3):
            got = rank.reduce_scatter(mine, dim=dim, axes=axes, reduction=reduction).wait()
            same(got, whole.chunk(size, dim)[place], f"reduce_scatter {reduction} {dim} {what}")
    for dim in range(3):
        same(
            rank.all_gather(mine, dim=dim, axes=axes).wait(),
            torch.cat(blocks, dim),
            f"all_gather {dim} {what}",
        )
    for split, concat in product(range(3), range(3)):
        expected = torch.cat([b.chunk(size, split)[place] for b in blocks], concat)
        got = rank.all_to_all(mine, split_dim=split, concat_dim=concat, axes=axes).wait()
        same(got, expected, f"all_to_all {split} {concat} {what}")
    for root in range(size):
        same(rank.broadcast(mine, axes=axes, root=root).wait(), blocks[root], f"broadcast {root} {what}")
    same(mine, before, f"operand of {what}")


def check_small(rank: Rank, axes: tuple) -> None:
    """Scalars and empty tensors."""
    members = next(p for p in rank.mesh.partition(axes) if rank.number in p)
    scalar = torch.tensor(float(rank.number))
    same(rank.all_reduce(scalar, axes=axes).wait(), torch.tensor(float(sum(members))), f"scalar {axes}")
    empty = torch.empty(0, 3)
    same(rank.all_gather(empty, dim=1, axes=axes).wait(), torch.empty(0, 3 * len(members)), f"empty {axes}")
    same(rank.all_reduce(empty, axes=axes).wait(), empty, f"empty {axes}")


def check_permute(rank: Rank, layouts: list[tuple]) -> None:
    """Between all layouts of a matrix with equal blocks; the last entry of a layout stands for
    partial terms.
    """
    shapes = {layout: tuple(ways(dim) for dim in layout) for layout in layouts}
    for source, target in product(layouts, layouts):
        if shapes[source] != shapes[target]:
            continue
        axes = tuple(dict.fromkeys(a for layout in (source, target) for dim in layout for a in dim))
        number = lambda r, layout: torch.tensor([rank.mesh.index(r, dim) for dim in layout]).expand(2, 3)  # noqa: E731
        got = rank.permute(number(rank.number, source), source=source, target=target, axes=axes).wait()
        same(got, number(rank.number, target), f"permute {source} -> {target}")


def check_exchange(rank: Rank, axes: tuple) -> None:
    """A ring, mirrored places, and a chain in whose first place nobody sends; of every kind of tensor."""
    members, count = next(p for p in rank.mesh.partition(axes) if rank.number in p), ways(axes)
    place = members.index(rank.number)
    ring, chain = [(i - 1) % count for i in range(count)], [i - 1 for i in range(count)]
    for sources, dtype in product((ring, chain, list(reversed(range(count)))), DTYPES):
        value = lambda r, dtype=dtype: (torch.arange(6).view(2, 3).t() + r + 1).to(dtype)  # noqa: E731
        got = rank.exchange(value(rank.number), sources=sources, axes=axes).wait()
        source = sources[place]
        expected = torch.zeros_like(value(0)) if source < 0 and count > 1 else value(members[source])
        same(got, expected, f"exchange {sources} over {axes}")


def check_pending(rank: Rank, axes: tuple) -> None:
    """Many at once, waited for in another order, while their operands get new values."""
    members = next(p for p in rank.mesh.partition(axes) if rank.number in p)
    state = [torch.full((1000,), float(rank.number + i)) for i in range(20)]
    pending = [rank.all_reduce(t, axes=axes) for t in state] + [
        rank.all_gather(t, dim=0, axes=axes) for t in state
    ]
    for t in state:
        rank.store(t, torch.full((1000,), -1.0))
    for i in reversed(range(20)):
        same(pending[i].wait(), torch.full((1000,), float(sum(members) + i * len(members))), f"pending {i}")
        parts = [torch.full((1000,), float(r + i)) for r in members]
        same(pending[20 + i].wait(), torch.cat(parts), f"pending gather {i}")


def check_long(rank: Rank, axes: tuple) -> None:
    """Tensors with parts above ``PART_BYTES``, beside messages between neighbours in the same group."""
    members, count = next(p for p in rank.mesh.partition(axes) if rank.number in p), ways(axes)
    place, long = members.index(rank.number), PART_BYTES
    value = lambda r: (torch.arange(long) % 7 + r).float()  # noqa: E731
    gathers = [rank.all_gather(value(rank.number) + i, dim=0, axes=axes) for i in range(2)]
    rank.send([value(rank.number)], to=(place + 1) % count, axes=axes)
    before = (place - 1) % count
    message = rank.receive([((long,), torch.float32)], source=before, axes=axes)
    total = sum(map(value, members))
    scattered = rank.reduce_scatter(value(rank.number), dim=0, axes=axes)
    same(rank.all_reduce(value(rank.number), axes=axes).wait(), total, f"long all_reduce {axes}")
    same(message.wait()[0], value(members[before]), f"message {axes}")
    same(scattered.wait(), total.chunk(count)[place], f"long reduce_scatter {axes}")
    for i, gathered in reversed(list(enumerate(gathers))):
        same(gathered.wait(), torch.cat([value(r) + i for r in members]), f"long all_gather {axes}")
    rank.finish_all_sends()


def check_equal_sums(rank: Rank, axes: tuple) -> None:
    """Rounded sums are the same bits on every rank; of 16-bit numbers, the sum rounded once."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        random = torch.Generator().manual_seed(rank.number)
        x = torch.randn(1003, generator=random).to(dtype)
        got = rank.all_reduce(x, axes=axes).wait()
        every = rank.all_gather(got[None], dim=0, axes=axes).wait()
        same(every, got.expand_as(every), f"equal sums of {dtype} over {axes}")
        if dtype != torch.float32 and isinstance(rank._groups[axes], DirectGroup):
            terms = rank.all_gather(x[None], dim=0, axes=axes).wait().float()
            same(got, sum(terms.unbind()).to(dtype), f"sum of {dtype} over {axes}")


def main() -> None:
    for (mesh, lists), make in product(MESHES.items(), (Group, DirectGroup)):
        place = connect(mesh, "cpu", 60)
        rank = Rank(mesh, place.rank, place.device, Groups(mesh, place.rank, lists, place.timeout, make))
        for axes, dtype in product(lists, DTYPES):
            check_group(rank, axes, dtype)
        for axes in lists:
            check_small(rank, axes)
            check_pending(rank, axes)
            check_exchange(rank, axes)
            check_long(rank, axes)
            check_equal_sums(rank, axes)
        a, b = ((DATA,), (TENSOR,)) if mesh.space[0][0] == "data" else ((MAJOR,), (MINOR,))
        both, turned = (*a, *b), (*b, *a)
        check_permute(
            rank, [(both, (), ()), (turned, (), ()), (a, b, ()), (b, a, ()), ((), a, b), ((), b, a)]
        )


if __name__ == "__main__":
    run(main, "all collectives agree")
