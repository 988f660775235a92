"""Mixtures of experts: products of rows with their experts' matrices, and rows brought to their experts.

``shardc::expert_mm`` multiplies each row with the matrix of its expert; ``shardc::expert_outer`` is the
matrices' gradient. Rows may come in ``ways`` equal blocks, each for an equal block of the experts.
``shardc::dispatch`` copies rows to such blocks, of a static size, and ``shardc::collect`` takes results back
to the rows' own order. Neither drops a row: where there is too little room, a step stops. (GShard, Lepikhin
et al., 2021, dispatches by products with one-hot tensors; grouped products of sorted rows are MegaBlocks',
Gale et al., 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import ExpertOverflow
from .define import define

MM_SCHEMA = "(Tensor x, Tensor w, Tensor ids, int ways, float share) -> Tensor"
OUTER_SCHEMA = "(Tensor x, Tensor y, Tensor ids, int experts, int ways, float share) -> Tensor"
DISPATCH_SCHEMA = "(Tensor x, Tensor ids, int experts, int ways, int blocks, int room) -> Tensor"
DISPATCH_IDS_SCHEMA = "(Tensor ids, int experts, int ways, int blocks, int room) -> Tensor"
COLLECT_SCHEMA = "(Tensor y, Tensor ids, int experts) -> Tensor"
EMPTY = -1
"""The expert of a slot that holds no row."""
_GROUPED = (torch.bfloat16, torch.float16, torch.float32)


def _owners(ids: Tensor, experts: int, ways: int) -> Tensor:
    """The expert of each row among all; ``experts`` for a row that has none here."""
    own = experts // ways
    first = torch.arange(ways, device=ids.device).repeat_interleave(ids.numel() // ways) * own
    return torch.where((ids >= 0) & (ids < own), ids + first, experts)


def _ends(owners: Tensor, experts: int) -> Tensor:
    """Where the rows of each expert end once rows are sorted."""
    return torch.searchsorted(owners, torch.arange(experts, device=owners.device), right=True)


def _of_each(order: Tensor, ends: Tensor) -> Sequence[Tensor]:
    """The rows of each expert; behind them come those that have none."""
    return order.tensor_split(ends)[:-1]


def expert_mm(x: Tensor, w: Tensor, ids: Tensor, ways: int, share: float) -> Tensor:
    """Multiply each row with the matrix of its expert.

    Args:
        x: Rows [S, K], in ``ways`` blocks of S / ways.
        w: Matrices [E, K, N]; block i of the rows is for block i of the matrices.
        ids: Integers [S]: the number of a row's expert within its block of experts. A row whose number is
            none of them has a result of zeros.
        ways: The number of blocks; divides S and E.
        share: The part of a block's rows that one expert is expected to have. Work is counted by it; no
            result depends on it.

    Returns:
        [S, N], in the dtype of ``x``.
    """
    experts = len(w)
    owners, order = _owners(ids, experts, ways).sort()
    ends = _ends(owners, experts)
    if x.is_cuda and x.dtype in _GROUPED:
        made = torch.nn.functional.grouped_mm(x[order], w, offs=ends.to(torch.int32))
        made = torch.where((owners < experts)[:, None], made, 0)
        return torch.empty_like(made).index_copy_(0, order, made)
    made = x.new_zeros(len(x), w.shape[2])
    for matrix, own in zip(w, _of_each(order, ends), strict=True):
        made.index_copy_(0, own, x[own] @ matrix)
    return made


def expert_outer(x: Tensor, y: Tensor, ids: Tensor, experts: int, ways: int, share: float) -> Tensor:
    """The gradient of ``expert_mm``'s matrices: for each expert, the sum of its rows' outer products.

    Args:
        x: Rows [S, K].
        y: Rows [S, N], in the dtype of ``x``.
        ids: As for :func:`expert_mm`.
        experts: E, the number of experts of all blocks.
        ways: As for :func:`expert_mm`.
        share: As for :func:`expert_mm`.

    Returns:
        [E, K, N], in the dtype of ``x``.
    """
    owners, order = _owners(ids, experts, ways).sort()
    ends = _ends(owners, experts)
    if x.is_cuda and x.dtype in _GROUPED:
        return torch.nn.functional.grouped_mm(x[order].t(), y[order], offs=ends.to(torch.int32))
    made = x.new_empty(experts, x.shape[1], y.shape[1])
    for sums, own in zip(made, _of_each(order, ends), strict=True):
        torch.mm(x[own].t(), y[own], out=sums)
    return made


def _slots(ids: Tensor, experts: int, ways: int, blocks: int, room: int) -> Tensor:
    """For each row [S] its slot in a buffer [ways, blocks, room]: rows for one way keep their order.

    Raises ExpertOverflow.
    """
    block = torch.arange(blocks, device=ids.device).repeat_interleave(ids.numel() // blocks)
    parts, order = (ids // (experts // ways) * blocks + block).sort(stable=True)
    every = torch.arange(ways * blocks, device=ids.device)
    starts = torch.searchsorted(parts, every)
    if room < ids.numel() // blocks:
        _check_room((torch.searchsorted(parts, every, right=True) - starts).amax(), room)
    places = torch.arange(ids.numel(), device=ids.device) - starts[parts]
    return torch.empty_like(ids).index_copy_(0, order, parts * room + places)


def _check_room(most: Tensor, room: int) -> None:
    """Stop where a way gets more rows than it has room for; a GPU does so without waiting."""
    what = f"of a device's rows, more than {room} go to experts that have room for {room}"
    if most.is_cuda:
        torch.ops.aten._assert_async.msg(most <= room, f"ExpertOverflow: {what}; raise expert_capacity")
    elif most > room:
        what = f"{int(most)} of a device's rows go to experts that have room for {room}"
        raise ExpertOverflow(what, hint="raise expert_capacity, or leave it out: then there is room for all")


def dispatch(x: Tensor, ids: Tensor, experts: int, ways: int, blocks: int, room: int) -> Tensor:
    """Bring rows to the blocks of their experts.

    Args:
        x: Rows [S, H], in ``blocks`` equal blocks that are dispatched each by itself.
        ids: The expert of each row [S], from 0 to ``experts`` - 1.
        experts: The number of experts; ``ways`` divides it.
        ways: The number of blocks of experts.
        blocks: The number of blocks of rows.
        room: For how many rows of a block there is room at each way; S / blocks is for all.

    Returns:
        [ways, blocks, room, H], zeros where there is no row.

    Raises:
        ExpertOverflow: A way gets more rows of a block than it has room for. None is dropped.
    """
    made = x.new_zeros(ways * blocks * room, x.shape[1])
    made[_slots(ids, experts, ways, blocks, room)] = x
    return made.view(ways, blocks, room, x.shape[1])


def dispatch_ids(ids: Tensor, experts: int, ways: int, blocks: int, room: int) -> Tensor:
    """The experts of dispatched rows.

    Args:
        ids: As for :func:`dispatch`.
        experts: As for :func:`dispatch`.
        ways: As for :func:`dispatch`.
        blocks: As for :func:`dispatch`.
        room: As for :func:`dispatch`.

    Returns:
        [ways, blocks, room]: numbers within the way's block of experts, -1 where there is no row.

    Raises:
        ExpertOverflow: As for :func:`dispatch`.
    """
    made = ids.new_full((ways * blocks * room,), EMPTY)
    made[_slots(ids, experts, ways, blocks, room)] = ids % (experts // ways)
    return made.view(ways, blocks, room)


def collect(y: Tensor, ids: Tensor, experts: int) -> Tensor:
    """Take dispatched rows back to their own order.

    Args:
        y: [ways, blocks, room, N].
        ids: As for :func:`dispatch`.
        experts: As for :func:`dispatch`.

    Returns:
        [S, N].
    """
    ways, blocks, room = y.shape[:3]
    return y.flatten(0, 2)[_slots(ids, experts, ways, blocks, room)]


def _fake_mm(x: Tensor, w: Tensor, ids: Tensor, ways: int, share: float) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[2])


def _fake_outer(x: Tensor, y: Tensor, ids: Tensor, experts: int, ways: int, share: float) -> Tensor:
    return x.new_empty(experts, x.shape[1], y.shape[1])


def _fake_dispatch(x: Tensor, ids: Tensor, experts: int, ways: int, blocks: int, room: int) -> Tensor:
    return x.new_empty(ways, blocks, room, x.shape[1])


def _fake_dispatch_ids(ids: Tensor, experts: int, ways: int, blocks: int, room: int) -> Tensor:
    return ids.new_empty(ways, blocks, room)


def _fake_collect(y: Tensor, ids: Tensor, experts: int) -> Tensor:
    return y.new_empty(ids.shape[0], y.shape[3])


define("expert_mm", MM_SCHEMA, expert_mm, _fake_mm)
define("expert_outer", OUTER_SCHEMA, expert_outer, _fake_outer)
define("dispatch", DISPATCH_SCHEMA, dispatch, _fake_dispatch)
define("dispatch_ids", DISPATCH_IDS_SCHEMA, dispatch_ids, _fake_dispatch_ids)
define("collect", COLLECT_SCHEMA, collect, _fake_collect)
