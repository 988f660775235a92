"""Rules of pooling and of the nearest pixel, one call of every operator in the tables."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.spatial.pooling import LINEAR, MAXIMA

aten = torch.ops.aten
IMAGES = {1: sample(4, 6, 8), 2: sample(4, 6, 8, 4), 3: sample(2, 4, 4, 4, 2)}
RESAMPLED = {n: (*image.shape[:2], *(2 * size for size in image.shape[2:])) for n, image in IMAGES.items()}


def halves(spatial: int) -> tuple[int, ...]:
    return tuple(size // 2 for size in IMAGES[spatial].shape[2:])


def pooled(spatial: int) -> torch.Tensor:
    """A gradient of something pooled to half the size."""
    return sample(*IMAGES[spatial].shape[:2], *halves(spatial), seed=5)


def windows(spatial: int, *more: int) -> tuple[tuple[int, ...], ...]:
    """Kernel and stride 2, and ``more`` settings, for each spatial dim."""
    return tuple((setting,) * spatial for setting in (2, 2, *more))


def pooling_calls(spatial: int) -> dict[str, tuple[Any, ...]]:
    """Arguments of average and maximum pooling and their gradients over images of ``spatial`` dims."""
    image, size = IMAGES[spatial], halves(spatial)
    calls: dict[str, tuple[Any, ...]] = {f"avg_pool{spatial}d": (image, *windows(spatial, 1))}
    if spatial == 1:
        return calls
    best = getattr(aten, f"max_pool{spatial}d_with_indices")(image, *windows(spatial))[1]
    fitted = getattr(aten, f"adaptive_max_pool{spatial}d")(image, size)[1]
    gradient = pooled(spatial)
    return calls | {
        f"avg_pool{spatial}d_backward": (gradient, image, *windows(spatial, 0), False, True, None),
        f"_adaptive_avg_pool{spatial}d": (image, size),
        f"_adaptive_avg_pool{spatial}d_backward": (gradient, image),
        f"max_pool{spatial}d_with_indices": (image, *windows(spatial, 1)),
        f"max_pool{spatial}d_with_indices_backward": (gradient, image, *windows(spatial, 0, 1), False, best),
        f"adaptive_max_pool{spatial}d": (image, size),
        f"adaptive_max_pool{spatial}d_backward": (gradient, image, fitted),
    }


def resampling_calls(spatial: int, name: str) -> dict[str, tuple[Any, ...]]:
    """Arguments of an upsampling to twice the size, told as a size or as factors, and its gradient."""
    image, whole = IMAGES[spatial], RESAMPLED[spatial]
    calls = {
        name: (image, whole[2:]),
        f"{name}_backward": (sample(*whole, seed=6), whole[2:], tuple(image.shape)),
    }
    if "exact" not in name:
        calls[f"{name}.vec"] = (image, None, (2.0,) * spatial)
    return calls


CALLS = {
    1: pooling_calls(1)
    | resampling_calls(1, "upsample_nearest1d")
    | resampling_calls(1, "_upsample_nearest_exact1d"),
    2: pooling_calls(2)
    | resampling_calls(2, "upsample_nearest2d")
    | resampling_calls(2, "_upsample_nearest_exact2d"),
    3: pooling_calls(3) | resampling_calls(3, "upsample_nearest3d"),
}
EVERY = [
    (name, spatial)
    for table in (LINEAR, MAXIMA)
    for spatial, names in table.items()
    for name in names.split()
]


FREE = ("avg_pool", "max_pool", "upsample_", "_upsample_nearest", "_adaptive_avg_pool", "adaptive_max_pool")
"""What makes each pixel of one side of a whole number of the other side's."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "spatial"), EVERY, ids=[name for name, _ in EVERY])
def test_every_operator(name: str, spatial: int) -> None:
    proof = prove(f"aten.{name}", CALLS[spatial][name])
    small = IMAGES[spatial].shape[2:] if "upsample" in name else halves(spatial)
    pixels = tuple(f"y{d}" for d, size in enumerate(small) if size > 1)
    # A kernel of 2 with a padding of 1 makes a pixel more than half.
    padded = name.startswith(("avg_pool", "max_pool"))
    free = name.startswith(FREE) and (name.endswith("backward") or not padded)
    assert proof.rule.factors == ("n0", "n1", *(pixels if free else ()))
    assert proof.unreached == ()
    assert list(proof.rule.linear) == ([{0}] if name in LINEAR[spatial].split() else [])


# id: spatial dims, kernel, stride, padding, and more of the call
WINDOWS = {
    "2x2": (2, 2, 2, 0),
    "overlapping": (2, 3, 1, 1),
    "overlapping, strided": (2, 3, 2, 1),
    "strided, rounded up": (2, 3, 2, 1, True),
    "rounded up to what tiles": (2, 3, 2, 0, True),
    "3d": (3, 3, 1, 1),
    "farther than a block": (2, 5, 1, 2),
    "gaps": (2, 2, 4, 0),
}


def _image(spatial: int) -> torch.Tensor:
    """Below 0, so that zeros beyond the edge would win."""
    return -1 - sample(*((2, 2, 8, 4) if spatial == 2 else (2, 2, 4, 4, 2))).abs()


@pytest.mark.parametrize("case", WINDOWS)
def test_maxima_of_windows_that_are_cut(case: str) -> None:
    spatial, *sizes = WINDOWS[case]
    image, rounded = _image(spatial), sizes[3:] == [True]
    settings = [(size,) * spatial for size in (*sizes[:3], 1)]
    name = f"aten.max_pool{spatial}d_with_indices"
    proof = prove(name, (image, *settings, rounded), ways=(2, 4))
    made, index = getattr(aten, f"max_pool{spatial}d_with_indices")(image, *settings, rounded)
    args = (sample(*made.shape, seed=3), image, *settings, rounded, index)
    back = prove(f"{name}_backward", args, ways=(2, 4))
    assert [p.unreached for p in (proof, back)] == [(), ()]
    assert ("y0" in proof.rule.factors) == (case != "strided, rounded up")


AVERAGES = {
    "overlapping": (3, 1, 1, False, True, None),
    "strided": (3, 2, 1, False, True, None),
    "padding not counted": (3, 1, 1, False, False, None),
    "its own divisor": (3, 1, 1, False, False, 7),
    "no padding to count": (2, 2, 0, True, False, None),
    "a last window of fewer": (3, 2, 0, True, True, None),
    "of fewer, its own divisor": (3, 2, 0, True, True, 7),
}

UNEVEN = ("padding not counted", "a last window of fewer")


@pytest.mark.parametrize("case", AVERAGES)
def test_averages_of_windows_that_are_cut(case: str) -> None:
    kernel, stride, padding, *more = AVERAGES[case]
    image = sample(2, 2, 8, 4)
    settings = ((kernel,) * 2, (stride,) * 2, (padding,) * 2, *more)
    proof = prove("aten.avg_pool2d", (image, *settings), ways=(2, 4))
    grad = sample(*aten.avg_pool2d(image, *settings).shape, seed=3)
    back = prove("aten.avg_pool2d_backward", (grad, image, *settings), ways=(2, 4))
    assert [p.unreached for p in (proof, back)] == [(), ()]
    assert ("y0" in proof.rule.factors) == (case not in UNEVEN)


def test_rule_prints_each_size_of_image_as_a_letter() -> None:
    calls = CALLS[2]
    forward = prove("aten.max_pool2d_with_indices", calls["max_pool2d_with_indices"]).rule
    assert str(forward) == "([n0,n1,a0,a1])->([n0,n1,b0,b1],[n0,n1,b0,b1]) replicate={a0,b0,a1,b1}"
    backward = prove("aten.avg_pool2d_backward", calls["avg_pool2d_backward"]).rule
    assert (
        str(backward)
        == "([n0,n1,y0,y1],[n0,n1,(y0 s0),(y1 s1)])->([n0,n1,(y0 s0),(y1 s1)]) replicate={s0,s1}"
    )


def test_image_without_batch() -> None:
    rule = prove("aten.avg_pool2d", (IMAGES[2][0], (2, 2))).rule
    assert str(rule) == "([n0,(y0 s0),(y1 s1)])->([n0,y0,y1]) replicate={s0,s1}"
