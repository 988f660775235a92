"""Dispatch of a mixture's rows to their experts, and the way back.

``shardc::dispatch`` copies rows to blocks of a static size, and ``shardc::collect`` returns results in the
rows' own order. If there is too little room, the step stops. With ``drops`` it drops rows instead;
``shardc::beyond_room`` counts them, so that the caller can discard the step's results. (GShard, Lepikhin et
al., 2021, dispatches by products with one-hot tensors.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ExpertOverflow
from ..source import calling_line
from .define import define

_WHERE = "int experts, int ways, int blocks, int room"
DISPATCH_SCHEMA = f"(Tensor x, Tensor ids, {_WHERE}, bool drops=False) -> Tensor"
DISPATCH_IDS_SCHEMA = f"(Tensor ids, {_WHERE}, bool drops=False) -> Tensor"
COLLECT_SCHEMA = "(Tensor y, Tensor ids, int experts, bool drops=False) -> Tensor"
BEYOND_SCHEMA = f"(Tensor ids, {_WHERE}) -> Tensor"
EMPTY = -1
"""Expert's number for a slot without a row."""


def _slots(ids: Tensor, experts: int, ways: int, blocks: int, room: int, drops: bool = False) -> Tensor:
    """Return each row's slot [S] in a buffer [ways, blocks, room]. Rows for one way keep their order.

    A row that is not dispatched gets the slot after the last. Raises ExpertOverflow.
    """
    last = ways * blocks
    block = torch.arange(blocks, device=ids.device).repeat_interleave(ids.numel() // blocks)
    parts = torch.where(ids < 0, last, ids // (experts // ways) * blocks + block)
    parts, order = parts.sort(stable=True)
    every = torch.arange(last + 1, device=ids.device)
    starts = torch.searchsorted(parts, every)
    if room < ids.numel() // blocks and not drops:
        _check_room(starts.diff().amax(), room)
    places = (torch.arange(ids.numel(), device=ids.device) - starts[parts]).clamp(max=room - 1)
    slots = (parts * room + places).clamp(max=last * room)
    return torch.empty_like(ids).index_copy_(0, order, slots)


def _check_room(most: Tensor, room: int) -> None:
    """Raise ExpertOverflow if a way gets more rows than it has room for. On a GPU this is asynchronous."""
    what = f"of a device's rows, more than {room} go to experts that have room for {room}"
    if most.is_cuda:
        torch.ops.aten._assert_async.msg(most <= room, f"ExpertOverflow: {what}; raise expert_capacity")
    elif most > room:
        what = f"{int(most)} of a device's rows go to experts that have room for {room}"
        hint = "raise expert_capacity, or leave it out: then there is room for all"
        raise ExpertOverflow(what, calling_line(), hint)


def dispatch(
    x: Tensor, ids: Tensor, experts: int, ways: int, blocks: int, room: int, drops: bool = False
) -> Tensor:
    """Copy rows to the blocks of their experts.

    Args:
        x: Rows [S, H], in ``blocks`` equal blocks that are dispatched separately.
        ids: The expert of each row [S], from 0 to ``experts`` - 1; -1 for a row that is not dispatched.
        experts: The number of experts; ``ways`` divides it.
        ways: The number of blocks of experts.
        blocks: The number of blocks of rows.
        room: Maximum number of a block's rows for each way; S / blocks has room for all.
        drops: Drop rows without room, in no particular order.

    Returns:
        [ways, blocks, room, H], with zeros in empty slots.

    Raises:
        ExpertOverflow: A way gets more rows of a block than it has room for, and ``drops`` is False.
    """
    made = x.new_zeros(ways * blocks * room + 1, x.shape[1])
    made[_slots(ids, experts, ways, blocks, room, drops)] = x
    return made[:-1].view(ways, blocks, room, x.shape[1])


def dispatch_ids(ids: Tensor, experts: int, ways: int, blocks: int, room: int, drops: bool = False) -> Tensor:
    """Return the experts of dispatched rows.

    Args:
        ids: As for :func:`dispatch`.
        experts: As for :func:`dispatch`.
        ways: As for :func:`dispatch`.
        blocks: As for :func:`dispatch`.
        room: As for :func:`dispatch`.
        drops: As for :func:`dispatch`.

    Returns:
        [ways, blocks, room]: numbers within the way's block of experts; -1 in empty slots.

    Raises:
        ExpertOverflow: As for :func:`dispatch`.
    """
    made = ids.new_full((ways * blocks * room + 1,), EMPTY)
    made[_slots(ids, experts, ways, blocks, room, drops)] = ids % (experts // ways)
    return made[:-1].view(ways, blocks, room)


def collect(y: Tensor, ids: Tensor, experts: int, drops: bool = False) -> Tensor:
    """Return dispatched rows in their own order.

    Args:
        y: [ways, blocks, room, N].
        ids: As for :func:`dispatch`.
        experts: As for :func:`dispatch`.
        drops: As for :func:`dispatch`.

    Returns:
        [S, N]: rows that were dropped or not dispatched get arbitrary values.
    """
    ways, blocks, room = y.shape[:3]
    slots = _slots(ids, experts, ways, blocks, room, drops)
    return y.flatten(0, 2)[slots.clamp(max=ways * blocks * room - 1)]


def beyond_room(ids: Tensor, experts: int, ways: int, blocks: int, room: int) -> Tensor:
    """Count the rows for which there is no room.

    Args:
        ids: As for :func:`dispatch`.
        experts: As for :func:`dispatch`.
        ways: As for :func:`dispatch`.
        blocks: As for :func:`dispatch`.
        room: As for :func:`dispatch`.

    Returns:
        [blocks], int64.
    """
    way = (ids // (experts // ways)).view(blocks, -1, 1)
    counts = (way == torch.arange(ways, device=ids.device)).sum(1)
    return (counts - room).clamp(min=0).sum(1)


def _fake_dispatch(
    x: Tensor, ids: Tensor, experts: int, ways: int, blocks: int, room: int, drops: bool = False
) -> Tensor:
    return x.new_empty(ways, blocks, room, x.shape[1])


def _fake_dispatch_ids(
    ids: Tensor, experts: int, ways: int, blocks: int, room: int, drops: bool = False
) -> Tensor:
    return ids.new_empty(ways, blocks, room)


def _fake_collect(y: Tensor, ids: Tensor, experts: int, drops: bool = False) -> Tensor:
    return y.new_empty(ids.shape[0], y.shape[3])


def _fake_beyond(ids: Tensor, experts: int, ways: int, blocks: int, room: int) -> Tensor:
    return ids.new_empty(blocks, dtype=torch.int64)


define("dispatch", DISPATCH_SCHEMA, dispatch, _fake_dispatch)
define("dispatch_ids", DISPATCH_IDS_SCHEMA, dispatch_ids, _fake_dispatch_ids)
define("collect", COLLECT_SCHEMA, collect, _fake_collect)
define("beyond_room", BEYOND_SCHEMA, beyond_room, _fake_beyond)
