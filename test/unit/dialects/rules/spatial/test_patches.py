"""Rules of patches as channels: columns and their sums along split pixels, and pixel shuffles."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.dialects.rules.proving.proof import Proof, prove
from shardc.dialects.rules.rule import load_rules

IMAGE = sample(2, 2, 8, 4)
# id: kernel, dilation, padding, stride; the rule of columns
WINDOWS: dict[str, tuple[tuple[tuple[int, int], ...], str]] = {
    "patches": (
        ((2, 2), (1, 1), (0, 0), (2, 2)),
        "([a,b,(d e),(f g)])->([a,(b c),(d f)]) replicate={c,e,g}",
    ),
    "overlapping": (
        ((3, 3), (1, 1), (1, 1), (1, 1)),
        "([a,b,d,e])->([a,(b c),(d e)]) replicate={c} trade={d,e}",
    ),
    "strided": (((3, 3), (1, 1), (1, 1), (2, 2)), ""),
    "dilated": (((3, 1), (2, 1), (2, 0), (1, 1)), ""),
    "farther than a block": (((5, 1), (1, 1), (2, 0), (1, 1)), ""),
    "gaps": (((2, 2), (1, 1), (0, 0), (4, 4)), ""),
}


def _both(image: torch.Tensor, windows: tuple[tuple[int, int], ...]) -> list[Proof]:
    args: tuple[Any, ...] = (image, *windows)
    made = call_of("aten.im2col", args)[2][0]
    back = (sample(*made.shape, seed=3), tuple(image.shape[-2:]), *windows)
    return [prove("aten.im2col", args, ways=(2, 4)), prove("aten.col2im", back, ways=(2, 4))]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", WINDOWS)
def test_columns(case: str) -> None:
    windows, rule = WINDOWS[case]
    forward, backward = _both(IMAGE, windows)
    assert not rule or str(forward.rule) == rule
    for proof in (forward, backward):
        assert proof.rule.factors
        assert proof.unreached == ()
        assert list(proof.rule.linear) == [{0}]


def test_image_without_batch() -> None:
    for proof in _both(IMAGE[0], WINDOWS["overlapping"][0]):
        assert len(proof.rule.traded) == 2


def test_windows_that_do_not_tile_keep_pixels_whole() -> None:
    for proof in _both(IMAGE, ((3, 3), (1, 1), (0, 0), (1, 1))):
        assert proof.rule.factors == ("a", "b")


def test_shuffled_pixels() -> None:
    up = prove("aten.pixel_shuffle", (sample(2, 12, 4, 6), 2), ways=(2,))
    assert str(up.rule) == "([a,(b e f),c,d])->([a,b,(c e),(d f)]) replicate={e,f}"
    down = prove("aten.pixel_unshuffle", (sample(2, 3, 8, 12), 2), ways=(2,))
    assert str(down.rule) == "([a,b,(c e),(d f)])->([a,(b e f),c,d]) replicate={e,f}"
    assert [p.unreached for p in (up, down)] == [(), ()]


def test_every_operator_has_a_case() -> None:
    registered = {t for t, f in load_rules().items() if f.__module__.endswith(".patches")}
    assert registered == {f"aten.{n}" for n in ("im2col", "col2im", "pixel_shuffle", "pixel_unshuffle")}
