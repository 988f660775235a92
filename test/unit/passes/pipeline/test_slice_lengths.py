"""Lengths of slices that take about equally long."""

from __future__ import annotations

import pytest
import torch
import transformers as hf

from shardc.cost.cluster.names import find_cluster
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.stages.slice_lengths import balanced_lengths
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of


@pytest.mark.parametrize(("tokens", "slices"), [(7, 7), (16, 3), (1000, 4), (4096, 5)])
def test_without_work_slices_are_even(tokens: int, slices: int) -> None:
    lengths = balanced_lengths([], tokens, slices)
    assert sum(lengths) == tokens and min(lengths) > 0
    assert max(lengths) - min(lengths) <= max(1, 2 * tokens // (8 * slices))


@pytest.mark.slow
def test_later_slices_attend_to_more_and_are_shorter() -> None:
    """A step of 1F1B over slices is then faster than with even ones."""
    tokens, cluster = 16384, find_cluster("h100-8")
    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 2, "vocab_size": 256}
    with torch.device("meta"):
        config = hf.LlamaConfig(**sizes, num_attention_heads=16, max_position_embeddings=tokens)
        model = hf.LlamaForCausalLM(config).to(torch.bfloat16)
        ids = torch.empty(2, tokens, dtype=torch.int64)
    batch = {"input_ids": ids, "labels": ids}
    question = Question("llama", model, torch.optim.SGD(model.parameters()), batch, None, tokens_of(batch))
    pricer, times = Pricer(question, cluster=cluster), {}
    for lengths in [(), (tokens // 4,) * 4]:
        schedule = by_name("seq-1f1b", 2, 2, slices=4, lengths=lengths)
        priced = pricer.price(Candidate({"pipe": 2}, "pipeline", 2, "none"), schedule=schedule)
        assert priced.schedule is not None
        times[priced.schedule.lengths] = priced.on(cluster).time.seconds
    (balanced, balanced_s), (_, even_s) = times.items()
    assert sorted(balanced, reverse=True) == list(balanced) and sum(balanced) == tokens
    assert all(length % 128 == 0 for length in balanced)
    assert balanced_s < 0.97 * even_s
