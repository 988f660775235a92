"""Copies of experts on all devices. Rows of copied experts stay on their device.

Each expert's matrices are stored on one device. ``shardc::pick_experts`` copies those of a few experts to all
devices, and ``shardc::place_experts`` returns their gradients. (FasterMoE, He et al., 2022, calls this
shadowing.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .define import define

IDS_SCHEMA = "(Tensor ids, int[] experts) -> Tensor"
PICK_SCHEMA = "(Tensor w, int[] experts, int first) -> Tensor"
PLACE_SCHEMA = "(Tensor sums, int[] experts, int first, int count) -> Tensor"
OTHER = -1
"""Number that marks a row whose expert has no copy."""


def copied_ids(ids: Tensor, experts: Sequence[int]) -> Tensor:
    """Number the rows of experts that have copies.

    Args:
        ids: The expert of each row [S].
        experts: The experts that have copies.

    Returns:
        [S], in the dtype of ``ids``: the position of a row's expert in ``experts``; -1 if it is not there.
    """
    made = torch.full_like(ids, OTHER)
    for number, expert in enumerate(experts):
        made.masked_fill_(ids == expert, number)
    return made


def pick_experts(w: Tensor, experts: Sequence[int], first: int) -> Tensor:
    """Copy the matrices of some experts.

    Args:
        w: Matrices [E, K, N] of the experts ``first`` to ``first`` + E - 1.
        experts: The C experts to copy.
        first: The number of the first expert of ``w``.

    Returns:
        [C, K, N]: zeros for experts that ``w`` does not have.
    """
    made = w.new_zeros(len(experts), *w.shape[1:])
    for number, expert in enumerate(experts):
        if first <= expert < first + len(w):
            made[number] = w[expert - first]
    return made


def place_experts(sums: Tensor, experts: Sequence[int], first: int, count: int) -> Tensor:
    """Place matrices of some experts among zeros for the others: the transpose of :func:`pick_experts`.

    Args:
        sums: Matrices [C, K, N] of ``experts``.
        experts: Their numbers, all different.
        first: The number of the first expert of the result.
        count: How many experts the result has.

    Returns:
        [count, K, N], of the experts ``first`` to ``first`` + ``count`` - 1.
    """
    made = sums.new_zeros(count, *sums.shape[1:])
    for number, expert in enumerate(experts):
        if first <= expert < first + count:
            made[expert - first] = sums[number]
    return made


def _fake_ids(ids: Tensor, experts: Sequence[int]) -> Tensor:
    return torch.empty_like(ids)


def _fake_pick(w: Tensor, experts: Sequence[int], first: int) -> Tensor:
    return w.new_empty(len(experts), *w.shape[1:])


def _fake_place(sums: Tensor, experts: Sequence[int], first: int, count: int) -> Tensor:
    return sums.new_empty(count, *sums.shape[1:])


define("copied_ids", IDS_SCHEMA, copied_ids, _fake_ids)
define("pick_experts", PICK_SCHEMA, pick_experts, _fake_pick)
define("place_experts", PLACE_SCHEMA, place_experts, _fake_place)
