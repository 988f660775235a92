"""No plan needs less than its lower bound, which is not much less than what the plan needs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.base import ShardcError
from shardc.planning.best_first import best_first
from shardc.planning.candidates import Candidate, plans_of
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer
from shardc.planning.question import META, Question, Sizes, read_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 64,
}
CONFIGS = {
    "llama": {**LLAMA, "num_hidden_layers": 7},
    "llama of two layers": {**LLAMA, "num_hidden_layers": 2},
    "tied": {**LLAMA, "num_hidden_layers": 8, "tie_word_embeddings": True},
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 6,
        "n_head": 4,
        "vocab_size": 256,
        "n_positions": 64,
    },
    "opt": {
        "model_type": "opt",
        "hidden_size": 64,
        "ffn_dim": 128,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "vocab_size": 256,
        "max_position_embeddings": 64,
        "word_embed_proj_dim": 64,
    },
    "mixtral": {
        **LLAMA,
        "model_type": "mixtral",
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "gemma2": {
        **LLAMA,
        "model_type": "gemma2",
        "num_hidden_layers": 8,
        "head_dim": 16,
        "sliding_window": 16,
    },
}
MESHES = (
    {"data": 4},
    {"tensor": 2},
    {"data": 2, "tensor": 2},
    {"pipe": 2, "data": 2},
    {"pipe": 2, "tensor": 2},
    {"data": 2, "context": 2},
)
BATCH, LENGTH = 16, 32


def of_config(folder: Path, config: dict[str, object], batch: int = BATCH, length: int = LENGTH) -> Pricer:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    question = read_config(path, Sizes(batch, length), torch.bfloat16)
    return Pricer(question, None, cluster_of("h100-8"))


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


def of_modules(width: int, layers: int, *, frozen: int = 0) -> Pricer:
    """A step of linear layers with SGD; the first ``frozen`` blocks are not trained."""
    with META:
        blocks = [_Block(width) for _ in range(layers)]
        for block in blocks[:frozen]:
            block.requires_grad_(False)
        model = nn.Sequential(nn.Linear(24, width), *blocks, nn.Linear(width, 8))
        batch = (torch.empty(BATCH, 24),)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    question = Question("blocks", model, optimizer, batch, lambda out, batch: out.square().mean())
    return Pricer(question, None, cluster_of("h100-8"))


def priced(pricer: Pricer, candidate: Candidate, **options: object) -> Price | None:
    """The price of a plan on the cluster; None if the plan cannot be made."""
    try:
        found = pricer.price(candidate, **options)
    except ShardcError:
        return None
    cluster = pricer.programs.cluster_of(candidate)
    assert cluster is not None
    return found.on(cluster)


def of_mesh(mesh: dict[str, int]) -> list[Candidate]:
    """The first and the last plan of a mesh: with data and with ZeRO-3, if it has data."""
    plans = [*plans_of(mesh, BATCH)]
    return [plans[0], plans[-1]]


def check(pricer: Pricer, candidate: Candidate, **options: object) -> float | None:
    """Compare a plan with its bounds. Return the bound over the peak; None without a price."""
    bound = pricer.bound(candidate, **options)
    price = priced(pricer, candidate, **options)
    if price is None:
        return None
    closer = pricer.closer_bound(candidate, **options)
    peak_bytes = price.priced.fullest.peak_bytes
    if closer is not None:
        assert closer.needed_bytes <= peak_bytes, (candidate.text, options)
        assert closer.seconds <= price.time.seconds, (candidate.text, options)
        bound = bound.and_also(closer)
    assert 0 < bound.state_bytes <= bound.needed_bytes <= peak_bytes, (candidate.text, options)
    assert 0 < bound.seconds <= price.time.seconds, (candidate.text, options)
    return bound.needed_bytes / peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES, ids="-".join)
@pytest.mark.parametrize("name", CONFIGS)
def test_no_plan_of_a_language_model_needs_less(tmp_path: Path, name: str, mesh: dict[str, int]) -> None:
    pricer = of_config(tmp_path, CONFIGS[name])
    assert any(check(pricer, candidate) is not None for candidate in of_mesh(mesh))


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES, ids="-".join)
@pytest.mark.parametrize("recompute", ["full", "selective"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral"])
def test_no_plan_that_recomputes_needs_less(
    tmp_path: Path, name: str, recompute: str, mesh: dict[str, int]
) -> None:
    pricer = of_config(tmp_path, CONFIGS[name])
    assert any(check(pricer, candidate, recompute=recompute) is not None for candidate in of_mesh(mesh))


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "frozen"), [(3, 0), (8, 0), (8, 3)])
def test_no_plan_of_linear_layers_needs_less(layers: int, frozen: int) -> None:
    pricer = of_modules(32, layers, frozen=frozen)
    for mesh in MESHES[:-1]:
        for candidate in of_mesh(mesh):
            check(pricer, candidate)


@pytest.mark.slow
def test_the_bound_of_a_deep_model_is_most_of_its_peak(tmp_path: Path) -> None:
    """Activations of many tokens, which data and sequence split evenly, and those of stages."""
    pricer = of_config(tmp_path, {**LLAMA, "num_hidden_layers": 24, "vocab_size": 64}, batch=64, length=64)
    for mesh, plan, micro_batches, least in (
        ({"pipe": 2, "data": 2}, "pipeline*zero1", 8, 0.8),
        ({"data": 4}, "zero3", 1, 0.8),
        ({"data": 4}, "data", 1, 0.8),
        ({"data": 2, "tensor": 2}, "zero3*sequence", 1, 0.8),
    ):
        share = check(pricer, Candidate(mesh, plan, micro_batches))
        assert share is not None and share > least, (plan, share)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch"), [("llama", 64), ("gpt2", 16)])
def test_the_best_plan_is_that_of_all_plans(tmp_path: Path, name: str, batch: int) -> None:
    """For each memory of a device, from one with which no plan fits to one with which all do."""
    pricer = of_config(tmp_path, CONFIGS[name], batch)
    meshes = [{"data": 4}, {"tensor": 4}, {"pipe": 2, "data": 2}]
    plans = [candidate for mesh in meshes for candidate in plans_of(mesh, batch)]
    known = {candidate.text: pricer.price(candidate) for candidate in plans}
    bounds = {candidate.text: pricer.closer_bound(candidate) for candidate in plans}
    compiled = 0
    for nodes in ("h100-8", "a100-80-8"):
        node = cluster_of(nodes)
        needed = sorted(priced.on(node).needed_bytes for priced in known.values())
        for capacity_bytes in (needed[0] / 2, needed[0] * 0.99, *needed[::4], needed[-1] * 2):
            devices = tuple(replace(device, memory_bytes=capacity_bytes) for device in node.devices)
            cluster = replace(node, devices=devices)
            given = [(candidate, pricer.on(cluster).bound(candidate)) for candidate in plans]
            closer = {text: bound if nodes == "h100-8" else None for text, bound in bounds.items()}

            def price(candidate: Candidate, cluster: Cluster = cluster) -> Price:
                return known[candidate.text].on(cluster)

            found = best_first(given, capacity_bytes, price, lambda c, closer=closer: closer[c.text])
            compiled += len(found.priced)
            if not found.is_hopeless:
                best = min((price(candidate) for candidate in plans), key=lambda price: price.order)
                assert min(found.priced, key=lambda price: price.order).order == best.order
    assert compiled < 0.9 * len(plans) * 2 * (len(needed[::4]) + 3)
