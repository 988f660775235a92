"""The k largest of a row: those of each device's block, then those of all blocks' candidates."""

from __future__ import annotations

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import OpCall
from shardc.passes.propagate.split.writer import PLACE, SplitWriter, has_places


def topk(
    w: SplitWriter, x: ir.Value, k: int, dim: int, largest: bool, sorted_: bool
) -> tuple[ir.Value, ir.Value]:
    """``(values, indices)``. Which of several equal elements it takes is open, as PyTorch leaves it."""
    dim = w.dim(x, dim)
    parts = w.blocks(x, dim)
    shape = w.shape(parts)
    each = min(k, shape[dim + 1])
    values, places = w.calls("aten.topk", parts, each, dim + 1, largest, True)
    starts = w.positions(w.ways, dim, len(shape), shape[dim + 1])
    places = w.add(w.cast(places, PLACE), starts)
    best, chosen = w.calls("aten.topk", w.joined(values, dim), k, dim, largest, sorted_)
    return best, w.cast(w.call("aten.gather", w.joined(places, dim), dim, chosen), torch.int64)


def saves(call: OpCall, ways: int) -> bool:
    """Whether blocks have fewer candidates than elements."""
    return has_places(call) and call["k"] * ways < call["self"].shape[call["dim"]]


def beats_move(call: OpCall, ways: int) -> bool:
    """Whether candidates of all blocks but one, which are gathered, are fewer than a block's elements.

    Where another dim is cut meanwhile, a device sends its block, and in the end the k largest.
    """
    return saves(call, ways) and call["k"] * (ways - 2) < call["self"].shape[call["dim"]] // ways
