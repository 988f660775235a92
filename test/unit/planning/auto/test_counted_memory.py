"""What a search counts is about what the compiled plan holds, and a program frees early what it counts so."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from shardc.backends.torch import emit
from shardc.backends.torch.emit import emit_program
from shardc.backends.torch.memory.dry_run import Peak
from shardc.backends.torch.memory.kinds import COLLECTIVES
from shardc.compiler.memory import step_peaks
from shardc.cost.cluster.names import find_cluster
from shardc.cost.schedule_form import FORMS, ScheduleForm
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.options.recompute import Policy
from shardc.passes.manager.attributes import phase_of
from shardc.passes.partition import dist_insert_reshards
from shardc.passes.search.calls.repeats import repeats
from shardc.passes.search.choose import Found
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of

CLUSTER = find_cluster("h100-8")
WIDTH, LAYERS = 2048, 4


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def pricer(rows: int, width: int = WIDTH, layers: int = LAYERS) -> Pricer:
    with torch.device("meta"):
        model = nn.Sequential(*(Block(width) for _ in range(layers))).to(torch.bfloat16)
        batch = torch.empty(rows, width, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    question = Question(
        "blocks", model, optimizer, (batch,), lambda out, _: out.float().square().mean(), rows
    )
    return Pricer(question, cluster=CLUSTER)


@pytest.mark.parametrize("rows", [131072])
@pytest.mark.parametrize("micro_batches", [1, 8])
def test_counted_memory_is_that_of_the_compiled_plan(rows: int, micro_batches: int) -> None:
    """Sums over micro-batches are in f32, and gathered activations are kept."""
    priced = pricer(rows).price(Candidate({"nvlink": 8}, "auto", micro_batches))
    assert priced.searched is not None
    assert priced.searched.held_bytes == pytest.approx(priced.fullest.peak_bytes, rel=0.25)


def test_a_loss_that_devices_repeat_counts() -> None:
    """Micro-batches take its rows, and no axis its classes; attention, which is larger, is sharded."""
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "vocab_size": 65536}
    with torch.device("meta"):
        heads = {"num_attention_heads": 64, "num_key_value_heads": 64, "attention_dropout": 0.1}
        config = hf.LlamaConfig(**sizes, **heads)
        model = hf.LlamaForCausalLM(config).to(torch.bfloat16).train()
        ids = torch.empty(48, 2048, dtype=torch.int64)  # 6 samples a micro-batch, for 8 devices
    batch = {"input_ids": ids, "labels": ids}
    question = Question("llama", model, torch.optim.AdamW(model.parameters()), batch, None, tokens_of(batch))
    priced = Pricer(question, cluster=CLUSTER).price(Candidate({"nvlink": 8}, "auto", 8, "full"))
    assert priced.searched is not None
    peak = priced.fullest.peak
    assert isinstance(peak, Peak) and "loss_utils" in peak.where
    assert priced.searched.held_bytes == pytest.approx(peak.size_bytes, rel=0.1)


@pytest.mark.parametrize("policy", ["none", "full"])
def test_parameters_of_all_layers_count(policy: Policy) -> None:
    """The update folds equal layers otherwise than forward, in which the first one has other neighbours."""
    with torch.device("meta"):
        sizes = {"n_embd": 512, "n_layer": 12, "n_head": 8, "n_positions": 128, "vocab_size": 512}
        model = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes)).to(torch.bfloat16)
        ids = torch.empty(8, 128, dtype=torch.int64)
    batch = {"input_ids": ids, "labels": ids}
    question = Question("gpt2", model, torch.optim.AdamW(model.parameters()), batch, None, tokens_of(batch))
    priced = Pricer(question, cluster=CLUSTER).price(Candidate({"nvlink": 2}, "auto", 1, policy))
    assert priced.searched is not None
    assert priced.searched.held_bytes == pytest.approx(priced.fullest.peak_bytes, rel=0.05)


@pytest.mark.parametrize("layers", [4, 6, 12])
@pytest.mark.parametrize("form", FORMS[:1] + FORMS[3:5], ids=str)
@pytest.mark.parametrize("micro_batches", [4, 16])
def test_counted_memory_is_that_of_the_fullest_stage(
    layers: int, form: ScheduleForm, micro_batches: int
) -> None:
    """Layers may not divide evenly; a stage keeps what its backward reads, and one layer's temporaries."""
    candidate = Candidate({"pipe": 4, "nvlink": 2}, "pipeline*auto", micro_batches, form=form)
    made = pricer(262144, layers=layers)
    found = made.found(candidate)
    assert isinstance(found, Found)
    peak_bytes = made.price(candidate).fullest.peak_bytes
    assert 0.8 * peak_bytes < found.held_bytes < 1.1 * peak_bytes


def test_shards_that_a_search_keeps_are_what_the_compiled_plan_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward gather them; else the gathered tensors would live in between."""
    candidate = Candidate({"nvlink": 8}, "auto", 1, room=0.045)
    made = pricer(16384, 8192)
    found, priced = made.found(candidate), made.price(candidate)
    assert isinstance(found, Found) and any(found.chosen.kept)
    assert found.held_bytes == pytest.approx(priced.fullest.peak_bytes, rel=0.05)
    monkeypatch.setattr(dist_insert_reshards, "read_kept", lambda *_: {})
    shared = pricer(16384, 8192).price(candidate)
    assert shared.fullest.peak_bytes > 1.05 * priced.fullest.peak_bytes
    assert sum(shared.sent.values()) < sum(priced.sent.values())


@pytest.mark.slow
def test_what_is_recomputed_gathers_shards_that_a_search_keeps() -> None:
    """In little memory a search keeps inputs of layers in shards; what forward gathers must not be kept."""
    cluster, samples = find_cluster("a100-80-8x8"), 1536
    with torch.device("meta"):
        sizes = {"n_embd": 8192, "n_layer": 8, "n_head": 64, "n_positions": 2048}
        off = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "use_cache": False}
        model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=51200, **sizes, **off)).to(torch.bfloat16).train()
        ids = torch.empty(samples, 2048, dtype=torch.int64)
    batch, optimizer = {"input_ids": ids, "labels": ids}, torch.optim.AdamW(model.parameters())
    question = Question("GPT", model, optimizer, batch, None, tokens_of(batch))
    made = Pricer(question, cluster=cluster)
    candidate = Candidate({"infiniband": 8, "nvlink": 8}, "auto", 16, "selective", room=0.14)
    found = made.found(candidate)
    assert isinstance(found, Found) and any(found.chosen.kept)
    assert made.price(candidate).fullest.peak_bytes < 1.2 * found.held_bytes  # 1.38 if forward kept them


def test_a_selective_pipeline_gathers_again() -> None:
    """It keeps shards of the norms' outputs for each micro-batch under way, not what is gathered of them."""
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "vocab_size": 1024}
    with torch.device("meta"):
        config = hf.LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=8)
        model = hf.LlamaForCausalLM(config).to(torch.bfloat16)
        ids = torch.empty(32, 1024, dtype=torch.int64)
    batch = {"input_ids": ids, "labels": ids}
    question = Question("llama", model, torch.optim.AdamW(model.parameters()), batch, None, tokens_of(batch))
    candidate = Candidate({"pipe": 2, "tensor": 4}, "pipeline*sequence", 8, "selective")
    peak = Pricer(question, cluster=CLUSTER).price(candidate).memory[0].peak
    assert isinstance(peak, Peak)
    kept = [a.size_bytes for a in peak.alive if a.kind == COLLECTIVES and a.place.phase == "forward"]
    gathered = ids.numel() // 8 * 1024 * 2
    assert sum(kept) < 2 * gathered


def test_a_stage_frees_what_it_reads_last(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = Candidate({"pipe": 2, "data": 4}, "pipeline*data", 4)
    module = pricer(16384).programs.compiled(candidate).program
    text, early = emit_program(module), step_peaks(module)
    assert ".clear()" in text
    monkeypatch.setattr(emit, "handed", lambda functions, sums: dict.fromkeys(sums, frozenset()))
    assert "handed" not in emit_program(module)
    for first, last in zip(early, step_peaks(module), strict=True):
        assert not isinstance(first, PeakUnknown) and not isinstance(last, PeakUnknown)
        sums = LAYERS // 2 * 8 * WIDTH * WIDTH * 4
        assert last.size_bytes - first.size_bytes > 0.5 * sums


def test_what_is_recomputed_is_split_as_in_forward() -> None:
    """So a plan without recomputation takes no longer, which bounds of choices rely on."""
    made, piped = pricer(1024), Candidate({"pipe": 2, "nvlink": 4}, "pipeline*auto", 4, "selective")
    for candidate in (piped, Candidate({"nvlink": 8}, "auto", 4, "selective")):
        step = made.graph(candidate)
        again = [n for n, node in enumerate(step.program.nodes) if phase_of(node.op) == "recompute"]
        found = repeats(step.program)
        assert again and set(found) == set(again)
        assert all(step.call_node[number] == step.call_node[first] for number, first in found.items())
