"""Rules of maxima of padded images: split dims get halos, other dims are padded on each rank.

At the outer edges halos hold the padding's number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Local, Rule, rule_for
from shardc.dialects.rules.spatial.neighbours import Halo, Windows
from shardc.dialects.rules.spatial.pixel_numbers import Block, renumbered
from shardc.dialects.rules.spatial.pooling import Pixels, rule_of

PADDED_POOL = "shardc.padded_max_pool"
PADDED_POOL_BACKWARD = f"{PADDED_POOL}_backward"
SPATIAL = 2
"""Number of dims of pixels: images, [..., H, W]."""


@rule_for(PADDED_POOL)
def padded_max_pool(call: OpCall) -> Rule:
    """Rule of ``image -> (maxima, indices in the padded image)``."""
    pixels = _pixels(call, call["self"], call.results[0])
    return rule_of(call, pixels, (), partial(_local, pixels))


@rule_for(PADDED_POOL_BACKWARD)
def padded_max_pool_backward(call: OpCall) -> Rule:
    """Rule of ``(gradient, image, indices) -> the image's gradient``, linear in the gradient."""
    pixels = _pixels(call, call["self"], call["grad_output"])
    return rule_of(call, pixels, (frozenset({0}),), partial(_local_backward, pixels))


def windows_of(call: OpCall, image: Sequence[int], made: Sequence[int]) -> list[Windows]:
    """Return the windows of each dim of pixels, for sizes of ``image`` without its padding."""
    settings = zip(call["kernel_size"], call["stride"], call["padding"], call["dilation"], strict=True)
    return [Windows(x, y, *each) for x, y, each in zip(image, made, settings, strict=True)]


def _pixels(call: OpCall, image: TensorType, made: TensorType | None) -> tuple[Pixels, ...]:
    assert made is not None
    sizes = image.shape[-SPATIAL:], made.shape[-SPATIAL:]
    found = enumerate(windows_of(call, *sizes))
    return tuple(Pixels(d, max(w.x, w.y), min(w.x, w.y), w if w.aligned else None) for d, w in found)


def _local(pixels: Sequence[Pixels], local: Local) -> Sequence[Any]:
    halos, x, value = _halos(pixels, local), local.args[0], local.spec["value"]
    sizes = _sizes(local, halos)
    for halo in halos.values():
        x = halo.extended(local, x, value)
    if any(pairs := _pairs(local, halos)):
        x = local.emit("aten.constant_pad_nd", x, pairs, value)
    made, index = local.emit("aten.max_pool2d_with_indices", x, *_settings(local))
    return [made, _renumbered(local, index, sizes, _whole(local), halos, pixels, 1)]


def _local_backward(pixels: Sequence[Pixels], local: Local) -> Sequence[Any]:
    """Compute the image's gradient: remove padding, and return a halo's gradient to its owner."""
    halos, (grad, x), index = _halos(pixels, local), local.args[:2], local.args[-1]
    sizes, leading = _sizes(local, halos), local.results[0].shape[:-SPATIAL]  # type: ignore[union-attr]
    index = _renumbered(local, index, _whole(local), sizes, halos, pixels, -1)
    # The operator reads only the shape of the image.
    padded = local.emit("aten.new_empty", x, (*leading, *sizes), None, None, None, None)
    made = local.emit("aten.max_pool2d_with_indices_backward", grad, padded, *_settings(local), index)
    if any(pairs := _pairs(local, halos)):
        made = local.emit("aten.constant_pad_nd", made, tuple(-n for n in pairs), 0)
    for halo in reversed(halos.values()):
        made = halo.returned(local, made)
    return [made]


def _halos(pixels: Sequence[Pixels], local: Local) -> dict[int, Halo]:
    """Return the halos of the dims that are split."""
    first = len(local.spec["self"].shape) - SPATIAL
    return {
        p.d: p.windows.halo(f"y{p.d}", first + p.d, local.size(f"y{p.d}"))
        for p in pixels
        if p.windows is not None and local.ways(f"y{p.d}") > 1
    }


def _settings(local: Local) -> tuple[object, ...]:
    spec = local.spec
    return spec["kernel_size"], spec["stride"], (0,) * SPATIAL, spec["dilation"], False


def _whole(local: Local) -> list[int]:
    """Return the sizes of the whole padded image."""
    spec = local.spec
    sides = zip(spec["self"].shape[-SPATIAL:], spec["padding"], spec["behind"], strict=True)
    return [sum(each) for each in sides]


def _sizes(local: Local, halos: Mapping[int, Halo]) -> list[int]:
    """Return the sizes of a rank's padded block."""
    blocks = {d: halo.before + halo.size + halo.after for d, halo in halos.items()}
    return [blocks.get(d, size) for d, size in enumerate(_whole(local))]


def _pairs(local: Local, halos: Mapping[int, Halo]) -> tuple[int, ...]:
    """Return the padding of dims that are not split, the last dim first."""
    pairs = zip(local.spec["padding"], local.spec["behind"], strict=True)
    own = [(0, 0) if d in halos else pair for d, pair in enumerate(pairs)]
    return tuple(n for pair in reversed(own) for n in pair)


def _renumbered(
    local: Local,
    index: Any,
    have: Sequence[int],
    want: Sequence[int],
    halos: Mapping[int, Halo],
    pixels: Sequence[Pixels],
    sign: int,
) -> Any:
    """Convert indices between a rank's block and the padded image, whose pixel 0 is the first halo's."""
    steps = {p.d: p.windows.step for p in pixels if p.windows is not None}
    blocks = {d: Block(halo.factor, steps[d], 0) for d, halo in halos.items()}
    return renumbered(local, index, have, want, blocks, sign) if blocks else index
