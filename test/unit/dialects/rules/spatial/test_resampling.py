"""Rules of linear and cubic resampling: halos of both, and gradients that go back to their owners."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.dialects.rules.proving.proof import Proof, prove
from shardc.dialects.rules.rule import load_rules
from shardc.dialects.rules.spatial.resampling import KINDS, RESAMPLING

IMAGES = {1: sample(2, 2, 8), 2: sample(2, 2, 8, 4), 3: sample(1, 2, 8, 4, 2)}
# id: how many times as large; the rule of rows that become
SCALES = {"2x": 2.0, "4x": 4.0, "half": 0.5, "a quarter": 0.25, "1.5x": 1.5, "3x": 3.0}


def _both(kind: str, image: torch.Tensor, size: tuple[int, ...], corners: bool = False) -> list[Proof]:
    args: tuple[Any, ...] = (image, size, corners)
    forward = prove(f"aten.upsample_{kind}", args, ways=(2, 4))
    grad = sample(*image.shape[: -len(size)], *size, seed=3)
    back = (grad, size, tuple(image.shape), corners)
    return [forward, prove(f"aten.upsample_{kind}_backward", back, ways=(2, 4))]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", SCALES)
def test_rows_are_cut(kind: str, scale: str) -> None:
    image = IMAGES[KINDS[kind]]
    size = (int(8 * SCALES[scale]), *image.shape[3:])
    for proof in _both(kind, image, size):
        rows = proof.rule.operands[0][2][0]
        assert rows in proof.rule.traded
        assert proof.unreached == ()
        assert list(proof.rule.linear) == [{0}]


@pytest.mark.parametrize("kind", KINDS)
def test_all_pixels_are_cut(kind: str) -> None:
    image = IMAGES[KINDS[kind]]
    for proof in _both(kind, image, tuple(2 * size for size in image.shape[2:])):
        assert len(proof.rule.traded) == KINDS[kind]
        assert proof.unreached == ()


def test_scales_that_are_told() -> None:
    proof = prove("aten.upsample_bilinear2d.vec", (IMAGES[2], None, False, (2.0, 1.5)), ways=(2, 4))
    assert str(proof.rule) == "([a,b,c,(e f)])->([a,b,(c d),(e g)]) replicate={d,f,g} trade={c,e}"
    other = call_of("aten.upsample_bilinear2d", (IMAGES[2], (16, 4), False, 2.1, None))[0]
    whole = prove("aten.upsample_bilinear2d", (IMAGES[2], (16, 4), False, 2.1, None)).rule
    assert other.target == "aten.upsample_bilinear2d"
    assert str(whole) == "([a,b,c,e])->([a,b,d,e]) replicate={c,d}"


def test_corners_that_are_aligned_keep_pixels_whole() -> None:
    for proof in _both("bilinear2d", IMAGES[2], (16, 4), corners=True):
        assert not proof.rule.traded


def test_every_operator_has_a_case() -> None:
    registered = {t for t, f in load_rules().items() if f.__module__.endswith(".resampling")}
    assert registered == set(RESAMPLING)
