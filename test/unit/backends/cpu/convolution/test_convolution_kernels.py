"""``kern.convolution`` compiled, against f64: strides, pads, dilations, groups, small and odd sizes."""

from __future__ import annotations

import random

import pytest
import torch
from bodies import Body, T, compiled

aten = torch.ops.aten
Sizes = tuple[int, ...]


def check(
    shape: Sizes,
    weight: Sizes,
    stride: Sizes = (),
    padding: Sizes = (),
    dilation: Sizes = (),
    transposed: bool = False,
    extra: Sizes = (),
    groups: int = 1,
    bias: bool = True,
    config: str = "",
) -> None:
    """Compare the kernel of a convolution with f64. Empty settings are ATen's defaults."""
    rank = len(shape) - 2
    torch.manual_seed(0)
    x, w = torch.randn(shape), torch.randn(weight)
    b = [torch.randn(weight[1] * groups if transposed else weight[0])] * bias
    numbers = [stride or (1,) * rank, padding or (0,) * rank, dilation or (1,) * rank]
    wide = [t.double() for t in (x, w, *b)]
    settings = (*numbers, transposed, extra or (0,) * rank, groups)
    truth = aten.convolution(*wide, *[None] * (not bias), *settings)
    body = Body("convolution", config=config)
    given = [body.argument(tuple(t.shape)) for t in (x, w, *b)]
    out = T("%out", tuple(truth.shape), "f32")
    names, types = ", ".join(t.name for t in given), ", ".join(t.type for t in given)
    values = zip(("stride", "padding", "dilation"), map(list, numbers), strict=True)
    written = ", ".join(f"{name} = {value}" for name, value in values)
    attributes = f"{written}, groups = {groups} : i64{', transposed' * transposed}"
    text = f'%out = "kern.convolution"({names}) {{{attributes}}} : ({types}) -> {out.type}'
    body.lines.append(text)
    body.results = [out]
    (made,) = compiled(body)(x, w, *b)
    scale = max(1.0, truth.abs().max().item())
    torch.testing.assert_close(made.double(), truth, rtol=0, atol=2e-6 * scale)


@pytest.mark.parametrize("pixels", [1, 7, 8, 9, 15, 16, 17, 33])
@pytest.mark.parametrize("channels", [(1, 1), (3, 5), (16, 6)])
def test_widths_of_rows(pixels: int, channels: Sizes, threads: int) -> None:
    """Rows shorter than a vector, and whose vectors overlap."""
    given, made = channels
    check((2, given, 3, pixels), (made, given, 3, 3), padding=(1, 1))
    check((2, given, 3, pixels), (given, made, 2, 3), (2, 2), (0, 1), transposed=True, extra=(0, 1))


SETTINGS = {
    "a line": ((3, 4, 50), (6, 4, 5), (3,), (2,), (2,)),
    "strides": ((2, 3, 21, 22), (4, 3, 3, 4), (2, 3), (1, 2), (2, 1)),
    "strides and dilations": ((2, 3, 21, 22), (4, 3, 3, 4), (2, 4), (1, 2), (2, 2)),
    "one pixel": ((5, 7, 1, 1), (9, 7, 1, 1)),
    "points": ((2, 33, 12, 10), (18, 33, 1, 1)),
    "windows of columns": ((2, 3, 12, 10), (18, 3, 5, 1), (1, 1), (2, 0)),
    "three dims": ((2, 3, 6, 7, 19), (5, 3, 3, 2, 3), (1, 2, 1), (1, 1, 0)),
    "a large window": ((1, 2, 14, 12, 13), (3, 2, 7, 5, 9), (2, 1, 1), (1, 0, 3)),
    "rows of ten": ((3, 8, 3, 16, 16), (20, 8, 3, 5, 7)),
    "rows of ten, strided": ((2, 8, 9, 28), (20, 8, 3, 9), (1, 2), (2, 0), (2, 1)),
    "many channels": ((1, 300, 9, 9), (12, 300, 3, 3)),
    "planes a page apart": ((2, 24, 4, 32, 32), (8, 24, 3, 3, 3)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str, threads: int) -> None:
    check(*SETTINGS[name])
    check(*SETTINGS[name], bias=False)


TRANSPOSED = {
    "a line": ((3, 4, 20), (4, 6, 5), (3,), (2,), (2,)),
    "more pixels": ((2, 3, 5, 11), (3, 4, 3, 4), (2, 3), (1, 0), (1, 1), True, (1, 2)),
    "residues without weights": ((2, 3, 5, 11), (3, 4, 1, 2), (2, 3), (0, 0), (1, 1), True, (1, 2)),
    "strides and dilations": ((2, 3, 6, 9), (3, 4, 3, 4), (2, 2), (1, 3), (2, 2)),
    "three dims": ((2, 3, 3, 4, 12), (3, 5, 3, 2, 4), (2, 1, 2), (1, 0, 1)),
    "a large window": ((1, 2, 4, 5, 10), (2, 3, 7, 9, 5), (1, 2, 1), (1, 4, 2)),
    "stride 1": ((2, 3, 9, 9), (3, 4, 3, 3), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed(name: str, threads: int) -> None:
    shape, weight, stride, padding, *rest = TRANSPOSED[name]
    dilation, _, extra = rest if len(rest) == 3 else ((rest or [(1,) * len(stride)])[0], True, ())
    check(shape, weight, stride, padding, dilation, True, extra)


@pytest.mark.parametrize("transposed", [False, True])
def test_groups(transposed: bool, threads: int) -> None:
    """Some groups, and each channel alone."""
    check((2, 6, 9, 10), (6, 2, 3, 3) if transposed else (9, 2, 3, 3), transposed=transposed, groups=3)
    check((3, 6, 20, 18), (6, 1, 3, 5), (1, 2), (1, 2), transposed=transposed, groups=6)


@pytest.mark.parametrize("config", ["tile_m = 1 : i64", "tile_m = 5 : i64, tile_n = 16 : i64"])
def test_tiles(config: str) -> None:
    check((2, 5, 13, 21), (7, 5, 3, 3), (1, 2), (1, 1), config=config)
    check((2, 5, 13, 21), (5, 7, 3, 3), (1, 2), (1, 1), transposed=True, config=config)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_drawn_settings(seed: int) -> None:
    draw = random.Random(seed)
    rank, groups, transposed = draw.choice([1, 2, 3]), draw.choice([1, 1, 2]), draw.random() < 0.5
    given, made = (draw.choice([1, 2, 3, 5]) * groups for _ in range(2))
    window, stride, dilation = ([draw.randint(1, most) for _ in range(rank)] for most in (5, 3, 3))
    padding = [draw.randint(0, d * (k - 1) // 2) for k, d in zip(window, dilation, strict=True)]
    most = {1: 60, 2: 20, 3: 10}[rank]
    pixels = [d * (k - 1) + 1 + draw.randint(0, most) for k, d in zip(window, dilation, strict=True)]
    weight = (given, made // groups, *window) if transposed else (made, given // groups, *window)
    extra = [draw.randrange(max(s, d)) for s, d in zip(stride, dilation, strict=True)] if transposed else []
    shape = (draw.randint(1, 3), given, *pixels)
    check(shape, weight, tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(extra), groups)
