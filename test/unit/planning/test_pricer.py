"""Prices predicted from two and three equal layers equal those of all layers."""

from __future__ import annotations

from math import isclose
from pathlib import Path

import pytest
import torch
from planned import write_config
from torch import Tensor, nn

from shardc.cost.allocator import GRANULE_BYTES
from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import ScheduleForm, form_of
from shardc.planning.candidates import Candidate
from shardc.planning.price import Priced
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, Sizes, read_config
from shardc.report.traffic import totals

NODE = find_cluster("h100-8")
PLANS = [
    Candidate({"data": 2, "tensor": 2}, "zero3*tensor"),
    Candidate({"data": 4}, "zero1", 2),
    Candidate({"data": 2, "tensor": 2}, "data*sequence"),
]
COMMON = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
"""Layers of real models are larger than buckets of collectives, which pack several smaller ones."""
CONFIGS = {
    "llama": {"num_hidden_layers": 9},
    "gpt2": {"n_embd": 4096, "n_layer": 9, "num_hidden_layers": 9, "n_head": 32, "n_positions": 4096},
    "gemma2": {"num_hidden_layers": 12, "head_dim": 128, "sliding_window": 1024},
}


def assert_same(foretold: Priced, whole: Priced) -> None:
    assert whole.is_whole and not foretold.is_whole
    assert dict(foretold.fullest.given) == dict(whole.fullest.given)
    assert foretold.fullest.peak_bytes == whole.fullest.peak_bytes
    assert foretold.fullest.kinds == whole.fullest.kinds
    assert isclose(foretold.fullest.reserved_bytes, whole.fullest.reserved_bytes, rel_tol=0.05)
    assert totals(list(foretold.transfers)) == totals(list(whole.transfers))
    for mine, theirs in ((foretold.work.own, whole.work.own), (foretold.work.single, whole.work.single)):
        assert isclose(sum(w.flops for w in mine), sum(w.flops for w in theirs))
        assert isclose(sum(w.bytes_moved for w in mine), sum(w.bytes_moved for w in theirs), rel_tol=1e-4)
    one, other = foretold.on(NODE).time, whole.on(NODE).time
    assert isclose(one.seconds, other.seconds, rel_tol=1e-3)
    assert sum(one.causes.values()) == pytest.approx(one.seconds)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config(kind: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, **{"model_type": kind, **COMMON, **CONFIGS[kind]})
    pricer = Pricer(read_config(config, Sizes(8, 4096), torch.bfloat16))
    for candidate in PLANS:
        assert_same(pricer.price(candidate), pricer.price(candidate, whole=True))


@pytest.mark.slow
def test_a_pipeline_and_whoever_asks_get_each_layer(tmp_path: Path) -> None:
    config = write_config(tmp_path, **COMMON, num_hidden_layers=6)
    pricer = Pricer(read_config(config, Sizes(4, 4096), torch.bfloat16))
    foretold, whole = (pricer.price(PLANS[0], whole=whole) for whole in (False, True))
    assert_same(foretold, whole)
    assert len(pricer.question.model.model.layers) == 6
    assert pricer.price(Candidate({"pipe": 2}, "pipeline", 2)).is_whole


PIPELINES = [
    Candidate({"pipe": 2, "data": 2}, "pipeline*zero3", 8),
    Candidate({"pipe": 2, "tensor": 2}, "pipeline*tensor", 8),
    Candidate({"pipe": 4}, "pipeline", 16),
]


def assert_same_stages(foretold: Priced, whole: Priced) -> None:
    assert whole.is_whole and not foretold.is_whole
    for mine, theirs in zip(foretold.memory, whole.memory, strict=True):
        # Gathers ahead of their use do not fill their windows in stages of few layers.
        assert isclose(mine.peak_bytes, theirs.peak_bytes, rel_tol=5e-3 if foretold.sent else 0)
        # Small models take few granules of the allocator, and may take one more. Slack grows
        # a little with depth.
        one = GRANULE_BYTES
        assert isclose(mine.reserved_bytes, theirs.reserved_bytes, rel_tol=0.08, abs_tol=one)
    assert totals(list(foretold.transfers)) == totals(list(whole.transfers))
    for mine, theirs in ((foretold.work.own, whole.work.own), (foretold.work.single, whole.work.single)):
        assert isclose(sum(w.flops for w in mine), sum(w.flops for w in theirs))
        assert isclose(sum(w.bytes_moved for w in mine), sum(w.bytes_moved for w in theirs), rel_tol=1e-4)
    assert [dict(rank.given) for rank in foretold.memory] == [dict(rank.given) for rank in whole.memory]
    one, other = foretold.on(NODE), whole.on(NODE)
    assert isclose(one.time.seconds, other.time.seconds, rel_tol=1e-3)
    assert isclose(one.flop_utilization, other.flop_utilization, rel_tol=1e-3)
    assert one.time.causes == pytest.approx(other.time.causes, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("form", [form_of("1f1b"), form_of("zb-h1"), form_of("interleaved", 2)], ids=str)
def test_stages_of_few_layers_and_micro_batches(form: ScheduleForm, tmp_path: Path) -> None:
    config = write_config(tmp_path, num_hidden_layers=11 * form.per_rank, vocab_size=1600)
    pricer = Pricer(read_config(config, Sizes(16, 64), torch.bfloat16))
    candidate = Candidate({"pipe": 2}, "pipeline", 8, form=form)
    assert_same_stages(pricer.price(candidate), pricer.price(candidate, whole=True))


@pytest.mark.parametrize("policy", ["full", "selective"])
def test_stages_whose_layers_are_recomputed(policy: str, tmp_path: Path) -> None:
    """With ``full`` they hold one layer's values at a time, unlike stages that are recomputed as a whole."""
    config = write_config(tmp_path, num_hidden_layers=12, vocab_size=1600)
    pricer = Pricer(read_config(config, Sizes(16, 64), torch.bfloat16))
    candidate = Candidate({"pipe": 2}, "pipeline", 8)
    layers = pricer.price(candidate, recompute=policy)
    assert_same_stages(layers, pricer.price(candidate, whole=True, recompute=policy))
    stages = pricer.price(candidate, recompute=(policy, policy))
    for mine, theirs in zip(layers.memory, stages.memory, strict=True):
        assert mine.peak_bytes < (0.8 if policy == "full" else 1.01) * theirs.peak_bytes


def test_stages_that_are_recomputed_as_a_whole_are_compiled() -> None:
    """A model without repeated layers has no smaller part to recompute."""
    with torch.device("meta"):
        model, batch = nn.Sequential(*(nn.Linear(64, 64) for _ in range(16))), torch.empty(32, 64)
    question = Question("chain", model, torch.optim.SGD(model.parameters()), (batch,), squares, 32)
    candidate = Candidate({"pipe": 2}, "pipeline", 8)
    assert not Pricer(question).price(candidate).is_whole
    assert Pricer(question).price(candidate, recompute="full").is_whole


def squares(out: Tensor, batch: object) -> Tensor:
    return out.square().sum()


@pytest.mark.slow
def test_stages_that_keep_activations_for_others(tmp_path: Path) -> None:
    """A few micro-batches have the evictions of all, and a price counts their time."""
    config = write_config(tmp_path, num_hidden_layers=18, vocab_size=1600)
    pricer = Pricer(read_config(config, Sizes(32, 64), torch.bfloat16))
    plain, balanced = (
        Candidate({"pipe": 4}, "pipeline", 16, form=ScheduleForm(balances=balances))
        for balances in (False, True)
    )
    foretold, whole = pricer.price(balanced), pricer.price(balanced, whole=True)
    assert whole.is_whole and not foretold.is_whole and foretold.schedule == whole.schedule
    for mine, theirs in zip(foretold.memory, whole.memory, strict=True):
        assert isclose(mine.peak_bytes, theirs.peak_bytes, rel_tol=5e-3)
    assert isclose(foretold.on(NODE).time.seconds, whole.on(NODE).time.seconds, rel_tol=1e-3)
    alone = pricer.price(plain)
    assert foretold.memory[0].peak_bytes < alone.memory[0].peak_bytes
    assert foretold.on(NODE).time.seconds > alone.on(NODE).time.seconds


@pytest.mark.slow
@pytest.mark.parametrize("candidate", PIPELINES, ids=str)
def test_stages_of_a_large_model(candidate: Candidate, tmp_path: Path) -> None:
    config = write_config(tmp_path, **{**COMMON, "num_hidden_layers": 12})
    pricer = Pricer(read_config(config, Sizes(16, 4096), torch.bfloat16))
    assert_same_stages(pricer.price(candidate), pricer.price(candidate, whole=True))


@pytest.mark.slow
def test_links_of_a_cluster_decide_on_collectives(tmp_path: Path) -> None:
    config = write_config(tmp_path, **COMMON, num_hidden_layers=2)
    question, cluster = read_config(config, Sizes(16, 4096), torch.bfloat16), find_cluster("h100-8x2")
    candidate = Candidate({"data": 8, "tensor": 2}, "zero1*tensor")
    by_bytes, by_links = (Pricer(question, None, c).price(candidate).on(cluster) for c in (None, cluster))
    assert by_links.time.seconds < by_bytes.time.seconds
    assert by_links.priced.sent != by_bytes.priced.sent


class Weighed(nn.Module):
    """Each layer's result is weighed by how many there are: nothing that layers add up to."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return torch.stack([a * b for a in found for b in found]).sum()


@pytest.mark.slow
def test_a_model_that_grows_faster_than_its_layers_has_each_compiled() -> None:
    with torch.device("meta"):
        model, batch = Weighed(), torch.empty(8, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pricer = Pricer(Question("Weighed", model, optimizer, batch, lambda out, _: out))
    assert pricer.price(Candidate({"data": 2}, "data")).is_whole


class Tables(nn.Module):
    """Layers in a list whose results are joined, so that fewer of them do not fit the next one."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1024, 64) for _ in range(count))
        self.dense = nn.Linear(count * 64, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = [table(ids[:, number]) for number, table in enumerate(self.tables)]
        return self.dense(torch.cat(found, dim=1)).square().mean()


def test_a_model_that_does_not_run_with_fewer_layers_is_priced_whole() -> None:
    """By a search, by its bounds and by a plan."""
    with torch.device("meta"):
        model, batch = Tables(8), (torch.empty(64, 8, dtype=torch.int64),)
    question = Question("tables", model, torch.optim.AdamW(model.parameters()), batch, None, 64)
    candidate = Candidate({"data": 8}, "zero3")
    pricers = [Pricer(question, cluster=NODE) for _ in range(3)]
    whole = pricers[0].price(candidate)
    assert whole.is_whole
    assert pricers[1].bound(candidate).needed_bytes <= whole.fullest.peak_bytes
    assert pricers[1].price(candidate).is_whole
    searched = pricers[2].price(Candidate({"nvlink": 8}, "auto"))
    assert searched.is_whole
    assert searched.on(NODE).time.seconds < whole.on(NODE).time.seconds
