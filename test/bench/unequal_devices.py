"""Searched plans on two kinds of device, beside equal parts and the presets that ``shardc plan`` knows.

    python test/bench/unequal_devices.py [numbers of clusters]

A Llama of width 2048 and 8 layers in bf16, 32 sequences of 2,048 tokens, with AdamW, on three clusters: an
H100 and an A100; two nodes of 2 H100 and two of 2 A100; a node of 8 H100 and one of 8 A100 with 40 GB. All
times are estimates. *Equal parts* is the plan that a search finds on as many A100s, on the mixed cluster. On
16 devices, presets are tried that use whole nodes, to end in minutes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "planning"))

from dataclasses import replace

from unequal_steps import mixed, presets

from shardc.cost.cluster.cluster import Cluster
from shardc.planning.auto.search import SearchedPlan, search_plan

CLUSTERS = [mixed(1, 1), mixed(2, 2, 2), mixed(1, 1, 8, slow_bytes=40e9)]


def searched(cluster: Cluster) -> SearchedPlan:
    with torch.device("meta"):
        sizes = {"hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 8}
        heads = {"num_attention_heads": 16, "num_key_value_heads": 16}
        config = LlamaConfig(**sizes, **heads, vocab_size=32000, max_position_embeddings=2048)
        model = LlamaForCausalLM(config).to(torch.bfloat16).train()
        tokens = torch.empty(32, 2048, dtype=torch.int64)
    optimizer = torch.optim.AdamW(model.parameters())
    return search_plan(model, optimizer, {"input_ids": tokens, "labels": tokens}, cluster=cluster)


def slowed(cluster: Cluster) -> Cluster:
    """All devices as the slow kind, with the memory of the smallest."""
    return replace(cluster, devices=(replace(cluster.devices[-1], count=None),))


def _is_by_nodes(mesh: Mapping[str, int]) -> bool:
    return mesh.get("pipe", 1) <= 2 and mesh.get("tensor", 1) in (1, 8)


def row(cluster: Cluster) -> str:
    begin_s = time.perf_counter()
    found = searched(cluster)
    took_s = time.perf_counter() - begin_s
    pricer = found.searches.pricer
    equal = pricer.price(searched(slowed(cluster)).candidate).on(cluster)
    known = presets(pricer, cluster, lambda mesh: cluster.size <= 8 or _is_by_nodes(mesh))
    best = min((price for price in known if price.fits), key=lambda price: price.time.seconds)
    cells = [
        cluster.name,
        f"{found.seconds * 1e3:.1f}",
        found.candidate.text,
        f"{found.around.bound_s * 1e3:.1f}",
        f"{equal.time.seconds * 1e3:.1f}",
        equal.priced.candidate.text,
        f"{best.time.seconds * 1e3:.1f}",
        best.priced.candidate.text,
        f"{took_s:.0f} s",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    chosen = [int(number) for number in sys.argv[1:]] or range(len(CLUSTERS))
    for each in chosen:
        print(row(CLUSTERS[each]), flush=True)
