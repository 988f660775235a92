"""Mixtures of experts: products of rows with their experts' matrices.

``shardc::expert_mm`` multiplies each row with the matrix of its expert. ``shardc::expert_outer`` computes the
matrices' gradient. Rows may come in ``ways`` equal blocks, each for an equal block of the experts.

``shardc::expert_ids`` checks indices of experts first, and stops a step with an invalid one. (Grouped
products of sorted rows are from MegaBlocks, Gale et al., 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import NoSuchExpert
from ..source import calling_line
from .define import define

IDS_SCHEMA = "(Tensor ids, int experts) -> Tensor"
MM_SCHEMA = "(Tensor x, Tensor w, Tensor ids, int ways, float share) -> Tensor"
OUTER_SCHEMA = "(Tensor x, Tensor y, Tensor ids, int experts, int ways, float share) -> Tensor"
_GROUPED = (torch.bfloat16, torch.float16, torch.float32)


def expert_ids(ids: Tensor, experts: int) -> Tensor:
    """Check the expert of each row.

    Args:
        ids: Integers [S].
        experts: The number of experts.

    Returns:
        A copy of ``ids``.

    Raises:
        NoSuchExpert: An index is not from 0 to ``experts`` - 1. On a GPU, an asynchronous assertion fails.
    """
    outside = (ids < 0) | (ids >= experts)
    if ids.is_cuda:
        what = f"NoSuchExpert: a row's expert is none of {experts} ({calling_line()})"
        torch.ops.aten._assert_async.msg(~outside.any(), what)
    elif outside.any():
        what = f"aten.index.Tensor: a row chooses expert {int(ids[outside][0])}, but there are {experts}"
        hint = f"find the op that gives this index; experts are 0 to {experts - 1}, never negative"
        raise NoSuchExpert(what, calling_line(), hint)
    return ids.clone()


def _owners(ids: Tensor, experts: int, ways: int) -> Tensor:
    """Return the global expert number of each row; ``experts`` for a row without an expert here."""
    own = experts // ways
    first = torch.arange(ways, device=ids.device).repeat_interleave(ids.numel() // ways) * own
    return torch.where((ids >= 0) & (ids < own), ids + first, experts)


def _ends(owners: Tensor, experts: int) -> Tensor:
    """Return the end of each expert's rows among the sorted rows."""
    return torch.searchsorted(owners, torch.arange(experts, device=owners.device), right=True)


def _of_each(order: Tensor, ends: Tensor) -> Sequence[Tensor]:
    """Return the rows of each expert. Rows without an expert, which come last, are left out."""
    return order.tensor_split(ends)[:-1]


def expert_mm(x: Tensor, w: Tensor, ids: Tensor, ways: int, share: float) -> Tensor:
    """Multiply each row with the matrix of its expert.

    Args:
        x: Rows [S, K], in ``ways`` blocks of S / ways.
        w: Matrices [E, K, N]; block i of the rows is for block i of the matrices.
        ids: Integers [S]: the number of a row's expert within its block of experts. The result of a row with
            any other number is zero.
        ways: The number of blocks; divides S and E.
        share: The part of a block's rows that one expert is expected to have. Only the cost model uses it.

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
    """Compute the gradient of ``expert_mm``'s matrices: for each expert, the sum of its rows' outer products.

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


def _fake_ids(ids: Tensor, experts: int) -> Tensor:
    return torch.empty_like(ids)


def _fake_mm(x: Tensor, w: Tensor, ids: Tensor, ways: int, share: float) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[2])


def _fake_outer(x: Tensor, y: Tensor, ids: Tensor, experts: int, ways: int, share: float) -> Tensor:
    return x.new_empty(experts, x.shape[1], y.shape[1])


define("expert_ids", IDS_SCHEMA, expert_ids, _fake_ids)
define("expert_mm", MM_SCHEMA, expert_mm, _fake_mm)
define("expert_outer", OUTER_SCHEMA, expert_outer, _fake_outer)
