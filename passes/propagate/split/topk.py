"""Top-k of a row: the top k of each device's block, then the top k of all blocks' candidates."""

from __future__ import annotations

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import OpCall
from shardc.passes.propagate.split.writer import PLACE, SplitWriter, has_places


def topk(
    w: SplitWriter, x: ir.Value, k: int, dim: int, largest: bool, sorted_: bool
) -> tuple[ir.Value, ir.Value]:
    """Write ``(values, indices)``. As in PyTorch, the choice among equal elements is unspecified."""
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
    """Return whether all blocks together have fewer candidates than elements."""
    return has_places(call) and call["k"] * ways < call["self"].shape[call["dim"]]


def beats_move(call: OpCall, ways: int) -> bool:
    """Return whether gathering the other blocks' candidates sends less than moving the split to another dim.

    The latter sends a device's block, and at the end the top k.
    """
    return saves(call, ways) and call["k"] * (ways - 2) < call["self"].shape[call["dim"]] // ways
