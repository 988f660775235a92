"""Decoding with a static cache: caches are written in place, keys of grouped queries are not repeated."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

HEADS, KEY_HEADS, LENGTH, WIDTH = 8, 2, 96, 16


def attend(keys, values, at, q, k, v, mask):
    """One step of decoding as ``transformers`` writes it under ``torch.compile``."""
    keys.index_copy_(2, at, k)
    values.index_copy_(2, at, v)
    groups = HEADS // KEY_HEADS
    wide = [
        x[:, :, None].expand(x.shape[0], KEY_HEADS, groups, LENGTH, WIDTH).reshape(-1, HEADS, LENGTH, WIDTH)
        for x in (keys, values)
    ]
    return F.scaled_dot_product_attention(q, *wide, attn_mask=mask) * 2


def arguments(rows: int, mask_heads: int = 1, batch: int = 2) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    caches = [torch.randn(batch, KEY_HEADS, LENGTH, WIDTH) for _ in range(2)]
    new = [torch.randn(batch, KEY_HEADS, rows, WIDTH) for _ in range(2)]
    at = torch.arange(40, 40 + rows)
    q = torch.randn(batch, HEADS, rows, WIDTH)
    seen = torch.arange(LENGTH)[None, :] <= at[:, None]
    mask = torch.zeros(batch, mask_heads, rows, LENGTH).masked_fill(~seen, -torch.inf)
    return (*caches, at, q, *new, mask)


@pytest.mark.parametrize("rows, mask_heads", [(1, 1), (3, 1), (1, HEADS)], ids=str)
@torch.no_grad()
def test_a_step_of_decoding_is_that_of_eager(rows, mask_heads, compiled, programs):
    given, wanted = arguments(rows, mask_heads), arguments(rows, mask_heads)
    place = given[0].data_ptr()
    torch.testing.assert_close(compiled(attend, fuse=True)(*given), attend(*wanted))
    for got, eager in zip(given[:2], wanted[:2], strict=True):
        assert torch.equal(got, eager)
    assert given[0].data_ptr() == place
    (program,) = programs
    assert program.count("    index_copy_(") == 2
    assert not any(word in program for word in ("clone(", "expand(", "index_copy(")), "nothing is copied"


@torch.no_grad()
def test_a_cache_that_is_read_again_is_copied_first(compiled):
    def both(cache, at, new):
        before = cache.exp()
        changed = cache.index_copy(0, at, new)
        return before + changed, cache - changed

    cache, at, new = torch.randn(64, 8), torch.tensor([3, 5]), torch.randn(2, 8)
    kept = cache.clone()
    got = compiled(both, fuse=True)(cache, at, new)
    torch.testing.assert_close(got, both(kept, at, new))
    assert torch.equal(cache, kept)


@torch.no_grad()
def test_elements_that_share_memory_are_not_written_in_place(compiled):
    def spread(row, at, new):
        return (row + 1).expand(6, 8).index_copy(0, at, new) * 2

    given = torch.randn(1, 8), torch.tensor([3, 5]), torch.randn(2, 8)
    torch.testing.assert_close(compiled(spread, fuse=True)(*given), spread(*given))
