"""Ring attention of a Llama: what it moves and computes, and what it does not take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

B, S, HIDDEN, HEADS = 4, 8, 32, 4
"""Batch, sequence, hidden size and heads of the fixture's Llama."""


@pytest.mark.parametrize(("ways", "kv_heads"), [(2, 4), (2, 2), (4, 4), (4, 1)])
def test_keys_and_values_travel(llama: Callable, ways: int, kv_heads: int) -> None:
    """n - 1 hops forward; in backward as many again, and as many of their gradients; no gather.

    Liu et al., 2023: a device holds and sends a block of keys and values at a time.
    """
    two, four = (llama(layers, "ring", {"context": ways}, kv_heads=kv_heads) for layers in (2, 4))
    counts: Counter[tuple[str, str]] = Counter()
    for (phase, kind, _, _), count in (four.counts() - two.counts()).items():
        counts[phase, kind] += count
    hops = ways - 1
    assert +counts == {
        ("forward", "exchange"): 2 * 2 * hops,
        ("backward", "exchange"): 2 * 4 * hops,
        ("backward", "all_reduce"): 18,
    }
    block = B * S // ways * HIDDEN * kv_heads // HEADS * 4  # of keys or values, in f32
    for phase, each in (("forward", 2), ("backward", 4)):
        more = four.bytes_moved("exchange", "context", phase)
        assert more - two.bytes_moved("exchange", "context", phase) == 2 * each * hops * block, phase


@pytest.mark.parametrize(
    ("plan", "mesh"),
    [("ring", {"ring": 4}), ("zero3*ring", {"data": 2, "cp": 2}), ("ring*tensor", {"cp": 2, "tensor": 2})],
)
def test_a_device_does_its_part_of_the_work(llama: Callable, plan: str, mesh: dict[str, int]) -> None:
    """Under a causal mask, too: tiles that no row sees are not computed."""
    compiled = llama(2, plan, mesh).compiled
    assert 0.9 / 4 <= compiled.work.share <= 1 / 4
    assert not [r for r in compiled.remarks if r.name in ("KeysGathered", "NotFolded")]
    assert "ring_attention" in compiled.levels["2-annotated"]


def test_a_length_that_is_not_folded_gathers_its_keys(llama: Callable) -> None:
    compiled = llama(1, "ring", {"context": 8}).compiled
    (said,) = [r.render() for r in compiled.remarks if r.name == "KeysGathered"]
    assert "1 calls of attention gather keys and values" in said
