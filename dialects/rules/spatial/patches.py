"""Rules of im2col and col2im, and of pixel shuffles.

A column holds the pixels of one window of each channel: channels are ``(c k)`` and windows ``(y0 y1)``. As in
convolutions, a dim ``(y s)`` of pixels may be split, and windows that reach into other blocks get a halo.
Shuffled pixels are ``[(c i j), y, x]`` as channels and ``[c, (y i), (x j)]`` as pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import FIRST, Factors, results_of
from shardc.dialects.rules.rule import Dim, Local, Rule, emit_with, rule_for
from shardc.dialects.rules.spatial.neighbours import Halo, Windows

SPATIAL = 2
_SUM = "aten.col2im"
_Windowed = tuple[Windows, Dim, bool]
"""The windows of a spatial dim, their factor, and whether it may be split."""


@rule_for("aten.im2col", _SUM)
def columns(call: OpCall) -> Rule:
    """Rule of ``[n, c, (y0 s0), (y1 s1)] -> [n, (c k), (y0 y1)]``, or of its inverse, which sums."""
    inverse = call.target == _SUM
    image, made = (call.tensors[0].shape, call.result.shape)[:: -1 if inverse else 1]
    factors = Factors()
    leading = factors.shape(image[:-SPATIAL])
    rows = leading[-1] + factors.whole(made[-2] // image[-SPATIAL - 1])
    windowed: list[_Windowed] = []
    pixels: list[Dim] = []
    for windows in _windows(call, image[-SPATIAL:]):
        may_cut = windows.aligned
        count = factors.new(windows.y) if may_cut else factors.whole(windows.y)
        pixels.append(count + factors.whole(windows.step) if may_cut else factors.whole(windows.x))
        windowed.append((windows, count, may_cut))
    columns = tuple(f for _, count, _ in windowed for f in count)
    large, small = (*leading, *pixels), (*leading[:-1], rows, columns)
    operand, result = (small, large) if inverse else (large, small)
    rule = factors.rule(call, (operand,), (result,), FIRST, partial(_local_columns, windowed))
    traded = frozenset(f for windows, count, cut in windowed if cut and _reaches(windows) for f in count)
    return replace(rule, traded=traded)


def _windows(call: OpCall, pixels: tuple[int, ...]) -> list[Windows]:
    names = ("kernel_size", "stride", "padding", "dilation")
    settings = zip(pixels, *(call[name] for name in names), strict=True)
    return [
        Windows(x, (x + 2 * margin - hole * (z - 1) - 1) // step + 1, z, step, margin, hole)
        for x, z, step, margin, hole in settings
    ]


def _reaches(windows: Windows) -> bool:
    return windows.margin > 0 or windows.after > 0


def _local_columns(windowed: Sequence[_Windowed], local: Local) -> Sequence[Any]:
    """Compute the columns of the block with its halos, or their sum, whose halos return to their owners."""
    image = local.spec.result if local.spec.target == _SUM else local.spec.tensors[0]
    first = len(image.shape) - SPATIAL
    halos = [
        windows.halo(count[0], first + d, local.size(count[0]))
        for d, (windows, count, _) in enumerate(windowed)
        if count and local.ways(count[0]) > 1
    ]
    cut = {halo.dim - first for halo in halos}
    padding = tuple(0 if d in cut else margin for d, margin in enumerate(local.spec["padding"]))
    if local.spec.target == _SUM:
        return [_summed(local, halos, padding)]
    x = reduce(lambda x, halo: halo.extended(local, x), halos, local.args[0])
    return [emit_with(local, self=x, padding=padding)]


def _summed(local: Local, halos: Sequence[Halo], padding: tuple[int, ...]) -> Any:
    sizes = list(results_of(local)[0].shape)
    for halo in halos:
        sizes[halo.dim] += halo.before + halo.after
    made = emit_with(local, output_size=tuple(sizes[-SPATIAL:]), padding=padding)
    return reduce(lambda x, halo: halo.returned(local, x), reversed(halos), made)


@rule_for("aten.pixel_shuffle", "aten.pixel_unshuffle")
def shuffle(call: OpCall) -> Rule:
    """Rule of ``[(c i j), y, x] -> [c, (y i), (x j)]``, or of its inverse."""
    inverse = call.target == "aten.pixel_unshuffle"
    times = call["downscale_factor" if inverse else "upscale_factor"]
    *leading, channels, height, width = (call.result if inverse else call.tensors[0]).shape
    factors = Factors()
    dims = factors.shape(leading)
    kept, y, x = factors.shape((channels // times**2, height, width))
    i, j = factors.whole(times), factors.whole(times)
    small, large = (*dims, kept + i + j, y, x), (*dims, kept, y + i, x + j)
    operand, result = (large, small) if inverse else (small, large)
    return factors.rule(call, (operand,), (result,), FIRST)
