"""Bytes of convolutions, pooling and moves along pixels split 8 ways, compared with XLA's partitioner.

The image is [4, 8, 64, 64] in f32, cut along its rows: a row of it is 8,192 bytes on each device. XLA's
figures are of the forward (issue 21); what goes back are the gradients of what came, and the halo once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

ROW = 4 * 8 * 64 * 4
WAYS = 8
PLAN = {"0": [None, None, "rows"]}


class Applied(nn.Module):
    """A function or a module on an image of which a gradient is asked."""

    def __init__(self, work: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.work = work

    def forward(self, image: Tensor) -> Tensor:
        return self.work(image * self.scale)


# id: what is done, rows that each device sends in forward and in backward
CASES: dict[str, tuple[Callable[[Tensor], Tensor], int, int]] = {
    "convolution": (nn.Conv2d(8, 8, 3, padding=1), 2, 4),
    "convolution, stride 2": (nn.Conv2d(8, 8, 3, 2, padding=1), 1, 2),
    "convolution, dilated": (nn.Conv2d(8, 8, 3, padding=2, dilation=2), 4, 8),
    "convolution, stride 2, padded behind": (
        nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 8, 3, 2)),
        1,
        2,
    ),
    "convolution, around": (nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), 2, 4),
    "patches": (nn.Conv2d(8, 8, 4, 4), 0, 0),
    "transposed": (nn.ConvTranspose2d(8, 8, 2, 2), 0, 0),
    "max pool 2x2": (nn.MaxPool2d(2), 0, 0),
    "max pool 3x3, stride 2": (nn.MaxPool2d(3, 2, 1), 1, 1),
    "average pool 3x3": (nn.AvgPool2d(3, 1, 1), 2, 2),
    "nearest": (nn.Upsample(scale_factor=2), 0, 0),
    "max pool 3x3, stride 2, rounded up": (nn.MaxPool2d(3, 2, ceil_mode=True), 1, 1),
    "max pool 3x3, stride 2, of a pad": (nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(3, 2)), 1, 1),
    "max pool 2x2, stride 1, of a pad": (nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1)), 1, 1),
    "adaptive max pool": (nn.AdaptiveMaxPool2d(16), 0, 0),
    "bilinear 2x": (nn.Upsample(scale_factor=2, mode="bilinear"), 2, 2),
    "bilinear 1.5x": (nn.Upsample(scale_factor=1.5, mode="bilinear"), 2, 2),
    "bilinear half": (nn.Upsample(scale_factor=0.5, mode="bilinear"), 0, 0),
    "bicubic 2x": (nn.Upsample(scale_factor=2, mode="bicubic"), 4, 4),
    "columns 3x3": (nn.Unfold(3, padding=1), 2, 2),
    "columns of patches": (nn.Unfold(4, stride=4), 0, 0),
    "shuffled pixels": (nn.PixelShuffle(2), 0, 0),
    "pixels as channels": (nn.PixelUnshuffle(2), 0, 0),
    "roll by 3": (lambda x: x.roll(3, 2), 3, 3),
    "roll by a block and 3": (lambda x: x.roll(-11, 2), 8, 8),
    "flip": (lambda x: x.flip(2), 8, 8),
    # 66 rows are computed as 72: blocks of 8 rows become blocks of 9, and back
    "pad by 1": (lambda x: functional.pad(x, (0, 0, 1, 1)), 6, 6),
    "pad by 1, of a number": (lambda x: functional.pad(x, (0, 0, 1, 1), value=2.5), 6, 6),
    "cut off 2": (lambda x: functional.pad(x, (0, 0, -2, -2)), 2, 2),
    "part": (lambda x: x[:, :, 1:-1], 1, 1),
    "first part": (lambda x: x[:, :, :60], 0, 0),
    "every other row": (lambda x: x[:, :, 1::2], 0, 0),
    "reflected": (lambda x: functional.pad(x, (0, 0, 1, 1), "reflect"), 6, 6),
    "repeated": (lambda x: functional.pad(x, (0, 0, 1, 1), "replicate"), 6, 6),
    # the rows that fill 66 up to 72 are traded, too
    "the other end": (lambda x: functional.pad(x, (0, 0, 1, 1), "circular"), 8, 8),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, compile_plan: Callable[..., Any]) -> tuple[Any, int, int]:
    work, forward, backward = CASES[request.param]
    loss = lambda out, _: out.square().mean()  # noqa: E731
    image = torch.zeros(4, 8, 64, 64)
    return compile_plan(Applied(work), (image,), PLAN, {"rows": WAYS}, loss=loss), forward, backward


@pytest.mark.sampled(2)
def test_rows_that_are_sent(case: tuple[Any, int, int]) -> None:
    sharded, forward, backward = case
    sent = [sharded.bytes_moved("exchange", "rows", phase) for phase in ("forward", "backward")]
    assert sent == [forward * ROW, backward * ROW]
    assert {t.kind for t in sharded.transfers} <= {"exchange", "all_reduce"}


def test_none_is_above_xla() -> None:
    """16,384 bytes for a 3x3 convolution, 8,192 with a stride of 2, 0 for a 2x2 pool, 24,576 to roll by 3,
    49,152 to pad by 1.
    """
    known = {"convolution": 16384, "convolution, stride 2": 8192, "max pool 2x2": 0}
    known |= {"roll by 3": 24576, "pad by 1": 49152}
    assert {name: CASES[name][1] * ROW for name in known} == known


def test_a_device_computes_its_share(compile_plan: Callable[..., Any]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, padding=1))
    loss = lambda out, _: out.square().mean()  # noqa: E731
    sharded = compile_plan(model, (torch.zeros(2, 3, 64, 8),), PLAN, {"rows": 4}, loss=loss)
    assert sharded.compiled.work is not None
    assert sharded.compiled.work.share == pytest.approx(1 / 4)
