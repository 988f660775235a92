"""The models of costs that choose tiles: what is legal, what is chosen, and what an estimate is worth."""

from dataclasses import replace

import pytest

from shardc.backends.triton import attention_model
from shardc.backends.triton.attention_model import Scores
from shardc.backends.triton.matmul_model import (
    Product,
    Tiling,
    choose,
    estimate_s,
    is_legal,
    roofline_s,
    shared_bytes,
    tilings,
)
from shardc.backends.triton.targets import TARGETS

SHAPES = [
    (1, 4096, 4096, 4096), (1, 8192, 8192, 8192), (1, 16, 4096, 4096), (1, 512, 512, 512), (1, 256, 256, 16384), (64, 512, 512, 64),
    (1, 2048, 32000, 4096), (1, 1, 50000, 768), (1, 100, 10, 30), (3, 17, 5, 3),
]  # fmt: skip


def product(shape, **kinds) -> Product:
    return Product(*shape, element_bytes=2, result_bytes=2, finish_bytes=1, by_descriptor=True, **kinds)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kinds", [{}, {"direct": False}, {"matrix": False}], ids=str)
def test_what_is_chosen_is_legal_and_the_best_of_the_legal(shape, kinds, target):
    p = product(shape, **kinds)
    chosen = choose(p, target)
    assert is_legal(chosen, p, target)
    assert estimate_s(chosen, p, target) == min(estimate_s(t, p, target) for t in tilings(p, target))
    assert estimate_s(chosen, p, target) > roofline_s(p, target)


def test_limits_of_shared_memory_and_registers():
    """As measured by compiling: a buffer a stage, and 256 sums a thread spill."""
    h100, p = TARGETS["sm_90"], product((1, 4096, 4096, 4096))
    t = Tiling(128, 256, 64, 8, 4)
    assert shared_bytes(t, p, h100) == 4 * (128 + 256) * 64 * 2
    assert is_legal(t, p, h100)
    assert not is_legal(replace(t, warps=4), p, h100)
    assert not is_legal(replace(t, stages=5), p, h100)


def test_what_is_made_of_a_sum_takes_registers_with_it():
    """As measured by compiling: gelu spills with 128 sums a thread, dropout with 64. Parts are written as they are."""
    h100, p = TARGETS["sm_90"], product((1, 4096, 4096, 4096))
    large, half = Tiling(128, 256, 64, 8, 3), Tiling(128, 128, 64, 8, 3)
    for beside, legal in ((0, (True, True)), (1, (False, True)), (3, (False, False))):
        assert tuple(is_legal(t, replace(p, beside=beside), h100) for t in (large, half)) == legal
    assert is_legal(replace(large, split=2), replace(p, beside=3), h100)
    assert is_legal(Tiling(128, 256, 32, 8, 2), replace(p, beside=3), TARGETS["gfx942"])


def test_large_squares_on_hopper():
    """The tile that is known to be the best there; measured on an H200, 8192^3 in bf16 runs at 788 TFLOP/s."""
    h200, p = TARGETS["sm_90"], product((1, 8192, 8192, 8192))
    chosen = choose(p, h200)
    assert (chosen.block_m, chosen.block_n, chosen.block_k, chosen.warps, chosen.persistent) == (128, 256, 64, 8, 1)
    assert 2 * 8192**3 / estimate_s(chosen, p, h200) == pytest.approx(788e12, rel=0.1)


def test_long_sums_of_few_tiles_are_split():
    for target in TARGETS.values():
        assert choose(product((1, 256, 256, 16384)), target).split > 1
        assert choose(product((1, 4096, 4096, 4096)), target).split == 1


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("kind", attention_model.PRODUCTS)
@pytest.mark.parametrize("size", [16, 64, 128, 256])
@pytest.mark.parametrize("rows", [1, 100, 4096])
def test_attention_has_legal_blocks(kind, size, rows, target):
    s = Scores(kind, 32, 32, rows, 4096, size, size, 2)
    chosen = attention_model.choose(s, target)
    assert attention_model.is_legal(chosen, s, target)
    assert attention_model.shared_bytes(chosen, s, target) <= target.shared_bytes
