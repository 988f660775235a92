"""Ring attention of a Llama: communication, computation, and unsupported calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from shardc.dialects.aten.call import CallReader, target_name
from shardc.passes.manager.program import program_blocks

B, S, HIDDEN, HEADS = 4, 8, 32, 4
"""Batch, sequence, hidden size and heads of the fixture's Llama."""


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert "1 attention call gathers keys and values" in said


def test_folded_sequences_keep_all_ranks_busy(compile_plan: Callable) -> None:
    """At 8 ranks a ring over sequences in order is at 53.3% of ideal, one over folded ones at 100%.

    In pairs of a row and a column that it sees: in each step ranks wait for the one with the most.
    """
    ranks, length = 8, 32
    ideal = length * length / 2 / ranks
    block = length // ranks
    naive = block * block / 2 + (ranks - 1) * block * block  # some rank sees all of each later block
    assert round(100 * ideal / naive, 1) == 53.3
    ids = torch.zeros(2, length, dtype=torch.int64)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=64
    )
    batch = {"input_ids": ids, "labels": ids}
    module = compile_plan(LlamaForCausalLM(config), batch, "ring", {"context": ranks}).compiled.rank_module
    reader = CallReader()
    ops = [view.operation for block in program_blocks(module) for view in block.operations]
    calls = [op for op in ops if op.name == "torch.operator" and target_name(op) == "shardc.attention"]
    tiles = [reader.read(op).spec for op in calls]
    assert len(tiles) == 1 + 2 * (ranks - 1)
    assert sum(t["q"].shape[2] * t["k"].shape[2] / (2 if t["causal"] else 1) for t in tiles) == ideal
