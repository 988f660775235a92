"""Plans by ``plan="auto"`` for published models and clusters: gap to the bound, and time of the search.

    python test/bench/searched_models.py [--model NAME ...] [--limit SECONDS]

Each model is built on the meta device from its published shapes, bf16 with AdamW. The search is that of
``shardc plan --plan auto`` without the compile of what it picked, in as much memory as that command gives a
first search. ``gap``: how much cheaper another choice of
stages, mesh, micro-batches, recomputation and cuts could be; ``inside``: how much cheaper other cuts of the
picked choice could be. Seconds are those of the search with its captures, imports of shardc
apart; CPU seconds include its other processes.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import torch
import transformers as hf
from machine import heading, table
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.passes.search.solver import ask
from shardc.planning.auto.ahead import Begun, Done, InChild
from shardc.planning.auto.choose import LIMIT_S, search_around
from shardc.planning.auto.pipelines.evictions import Evictions
from shardc.planning.auto.pipelines.stages import added_by_stages
from shardc.planning.auto.searches import ROOM, policies_of
from shardc.planning.auto.space import Choice, choices
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of
from shardc.planning.verdict import time_text
from shardc.workers.forked import can_fork

META = torch.device("meta")


@dataclass(frozen=True)
class Subject:
    """A model, its global batch and its cluster."""

    model: Callable[[], nn.Module]
    batch: Callable[[], object]
    cluster: str
    loss: Callable[..., Tensor] | None = None


def tokens(batch: int, length: int) -> Callable[[], object]:
    def made() -> object:
        ids = torch.empty(batch, length, dtype=torch.int64, device=META)
        return {"input_ids": ids, "labels": ids}

    return made


def images(batch: int, size: int) -> Callable[[], object]:
    def made() -> object:
        pixels = torch.empty(batch, 3, size, size, dtype=torch.bfloat16, device=META)
        return {"pixel_values": pixels, "labels": torch.empty(batch, dtype=torch.int64, device=META)}

    return made


def llama(layers: int, hidden: int, inner: int, heads: int) -> Callable[[], nn.Module]:
    config = hf.LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=8192,
    )
    return lambda: hf.LlamaForCausalLM(config)


def gpt(layers: int, hidden: int, heads: int) -> Callable[[], nn.Module]:
    config = hf.GPT2Config(
        n_layer=layers,
        n_embd=hidden,
        n_head=heads,
        n_positions=2048,
        vocab_size=51200,
        attn_pdrop=0,
        embd_pdrop=0,
        resid_pdrop=0,
    )
    return lambda: hf.GPT2LMHeadModel(config)


def bert(layers: int, hidden: int, heads: int) -> Callable[[], nn.Module]:
    config = hf.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    return lambda: hf.BertForMaskedLM(config)


def t5_11b() -> nn.Module:
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            d_model=1024,
            d_kv=128,
            d_ff=65536,
            num_heads=128,
            num_layers=24,
            dropout_rate=0,
            vocab_size=32128,
            decoder_start_token_id=0,
        )
    )


def wide_resnet_152() -> nn.Module:
    """Of Zagoruyko and Komodakis, 2016, with ResNet-152's depths; the widths are doubled."""
    sizes = [512, 1024, 2048, 4096]
    return hf.ResNetForImageClassification(
        hf.ResNetConfig(embedding_size=128, hidden_sizes=sizes, depths=[3, 8, 36, 3], num_labels=1000)
    )


def mixtral_8x22b() -> nn.Module:
    return hf.MixtralForCausalLM(
        hf.MixtralConfig(
            hidden_size=6144,
            intermediate_size=16384,
            num_hidden_layers=56,
            num_attention_heads=48,
            num_key_value_heads=8,
            vocab_size=32768,
            num_local_experts=8,
            num_experts_per_tok=2,
        )
    )


def deepseek_v3() -> nn.Module:
    return hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(num_hidden_layers=61))


class Chain(nn.Module):
    """Equal layers in a row."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.float().square().mean()


def rows(batch: int, width: int) -> Callable[[], object]:
    return lambda: (torch.empty(batch, width, dtype=torch.bfloat16, device=META),)


SUBJECTS: Mapping[str, Subject] = {
    "Llama-3-8B, 64": Subject(llama(32, 4096, 14336, 32), tokens(64, 8192), "h100-8x8"),
    "GPT-39B, 64": Subject(gpt(48, 8192, 64), tokens(1536, 2048), "a100-80-8x8"),
    "BERT-64, 2,048": Subject(bert(64, 1024, 16), tokens(8192, 512), "a100-80-8x256"),
    "T5-11B, 32": Subject(t5_11b, tokens(64, 512), "a100-80-8x4"),
    "WResNet-152, 8": Subject(wide_resnet_152, images(256, 224), "v100"),
    "Mixtral-8x22B, 128": Subject(mixtral_8x22b, tokens(256, 4096), "h100-8x16"),
    "DeepSeek-V3, 1,024": Subject(deepseek_v3, tokens(2048, 4096), "h100-8x128"),
    "Llama-3-405B, 16,384": Subject(llama(126, 16384, 53248, 128), tokens(2048, 8192), "h100-8x2048"),
    "chain of 1,024, 64": Subject(lambda: Chain(1024, 4096), rows(4096, 4096), "h100-8x8"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", choices=SUBJECTS)
    parser.add_argument("--limit", type=float, default=LIMIT_S)
    given = parser.parse_args()
    print(heading("Searched plans of published models"))
    head = ("model, devices", "plan", "ms a step", "gap", "inside", "looked at", "wall s", "CPU s")
    found = [row(name, SUBJECTS[name], given.limit) for name in given.model or SUBJECTS]
    print(table(head, found))


def cpu_s() -> float:
    """Return the CPU seconds of this process and of the solver's, which ends."""
    ask.end()
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def row(name: str, subject: Subject, limit_s: float) -> tuple[str, ...]:
    start_s, began_s = cpu_s(), perf_counter()
    with META:
        model = subject.model().to(torch.bfloat16).train()
    batch, cluster = subject.batch(), find_cluster(subject.cluster)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    question = Question(name, model, optimizer, batch, subject.loss, tokens_of(batch))
    pricer, evictions = Pricer(question, cluster=cluster), Evictions(cluster)

    def asked(choice: Choice) -> Candidate:
        return replace(choice.candidate, room=ROOM)

    def find(choice: Choice, cutoff_s: float) -> Found | Unfit:
        return evictions.search(pricer, asked(choice), cutoff_s)

    def begin(choice: Choice, cutoff_s: float) -> Begun:
        candidate = asked(choice)
        if not can_fork():
            return Done(evictions.search(pricer, candidate, cutoff_s))
        pricer.read(candidate)
        return InChild(lambda: evictions.search(pricer, candidate, cutoff_s), lambda answer: None, Clock())

    def least(choice: Choice) -> float:
        return pricer.least_part(asked(choice))

    policies = policies_of(model, None)
    given = list(choices(cluster, question.samples, question.layers, policies))
    added = added_by_stages(pricer.graph(asked(given[0])), given[0], cluster)
    more = {"added": added, "least": least, "evicting": evictions.seconds}
    around = search_around(given, find, limit_s, begin=begin, **more)
    spent = f"{perf_counter() - began_s:.1f}", f"{cpu_s() - start_s:.1f}"
    looked_at = f"{around.looked_at} of {around.choices}"
    if not around.found:
        return name, "none fits", "", "", "", looked_at, *spent
    best = around.found[0]
    inside = 1 - best.bound_s / best.seconds
    seconds = time_text(best.seconds)
    return name, best.choice.candidate.text, seconds, f"{around.gap:.1%}", f"{inside:.2%}", looked_at, *spent


if __name__ == "__main__":
    main()
