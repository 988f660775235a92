"""Sequences cut into slices of tokens that follow one another through a pipeline (TeraPipe, Seq1F1B), against
eager training on one device, to 1e-9 in f64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from models import TRAININGS, VOCAB, Batch, tokens
from pipelines import PIPELINED, captured, check_pipeline
from torch import Tensor, nn
from torch.nn import functional as F
from torch_mlir import ir
from training import capture

from shardc.diagnostics.passes.pipeline import (
    BadSliceLengths,
    NoSequence,
    NotCausal,
    ScheduleNotYet,
    TooFewTokens,
)
from shardc.dialects.aten.types import read_type
from shardc.dialects.pipe.schedule import Updates, orders
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.passes.pipeline.pipe_cut import cut_into_stages
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.step.compile_step import compile_step

RUNS = [
    ("llama", 2, 2, "terapipe", 4),
    ("llama", 2, 4, "seq-1f1b", 3),  # 16 tokens as 6, 5 and 5
    ("llama", 4, 2, "seq-1f1b", 2),
    ("llama", 4, 4, "terapipe", 5),
    (
        "gpt2",
        2,
        2,
        "seq-1f1b",
        3,
    ),  # a weight of both stages, and positions, whose gradient has a row for each token
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("model", "ranks", "micro_batches", "name", "slices"),
    RUNS,
    ids=[f"{m}-{r}x{n}-{s}-{k}" for m, r, n, s, k in RUNS],
)
def test_models(model: str, ranks: int, micro_batches: int, name: str, slices: int) -> None:
    module = captured(model).compile({"pipe": ranks}, {}, micro_batches).rank_module
    cut_into_stages(module, by_name(name, ranks, micro_batches, slices=slices), "pipe")
    check_pipeline(model, module)


@pytest.mark.parametrize(("name", "lengths"), [("terapipe", (9, 1, 4, 2)), ("seq-1f1b", (2, 14))])
def test_slices_of_given_lengths(name: str, lengths: tuple[int, ...]) -> None:
    module = captured("llama").compile({"pipe": 2}, {}, 2).rank_module
    cut_into_stages(module, by_name(name, 2, 2, lengths=lengths), "pipe")
    assert read_schedule(find_schedule(module)).lengths == lengths
    check_pipeline("llama", module)


@pytest.mark.parametrize("lengths", [(9, 8), (17, -1), ()])
def test_lengths_that_are_no_sequence(lengths: tuple[int, ...]) -> None:
    module = captured("llama").compile({"pipe": 2}, {}, 2).rank_module
    wrong = replace(by_name("terapipe", 2, 2, slices=2), lengths=lengths or (5, 5, 6))
    with pytest.raises(BadSliceLengths, match=r"(?s)2 slices of 16 tokens; its lengths are .*try: give 2"):
        cut_into_stages(module, wrong, "pipe")


def test_sequences_in_parts_are_not_sliced() -> None:
    with pytest.raises(NoSequence, match="no input has a dim 1 that is whole"):
        _compile(
            TRAININGS["llama"].model,
            tokens(),
            None,
            mesh={"pipe": 2, "tensor": 2},
            plan="pipeline*sequence",
            schedule="terapipe",
        )


@pytest.mark.slow
def test_a_rank_of_tensor_parallel_stages() -> None:
    """Collectives inside of slices."""
    step = _compile(
        TRAININGS["llama"].model,
        tokens(),
        None,
        mesh={"pipe": 2, "tensor": 2},
        plan="pipeline*tensor",
        schedule=by_name("terapipe", 2, 2, slices=3),
        verify=True,
    )
    assert "pipeline: terapipe, 2 stages, 2 micro-batches of 3 slices (6, 5, 5 tokens)" in str(step.plan)


class Mixing(nn.Module):
    """Embeddings, something that mixes tokens, and a classifier of each token."""

    def __init__(self, mix: Callable[[Mixing, Tensor], Tensor]) -> None:
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(VOCAB, 16), nn.Linear(16, 16), nn.Linear(16, VOCAB)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.mix = mix

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.mix(self, self.inner(self.embed(ids)))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def convolution(model: Mixing, x: Tensor) -> Tensor:
    return model.conv(x.transpose(1, 2)).transpose(1, 2)


def mean(model: Mixing, x: Tensor) -> Tensor:
    return x + torch.tanh(x.mean(1, keepdim=True))


def linear_mean(model: Mixing, x: Tensor) -> Tensor:
    return x + x.mean(1, keepdim=True)


def largest(model: Mixing, x: Tensor) -> Tensor:
    return x + x.amax(1, keepdim=True)


def both_ways(model: Mixing, x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]


def masked(model: Mixing, x: Tensor) -> Tensor:
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask)[:, 0]


def scores(model: Mixing, x: Tensor) -> Tensor:
    return (x @ x.transpose(1, 2)).softmax(-1) @ x


def linear_attention(model: Mixing, x: Tensor) -> Tensor:
    return (x @ x.transpose(1, 2)) @ x


def state(model: Mixing, x: Tensor) -> Tensor:
    return x @ (x.transpose(1, 2) @ x)


def running_sum(model: Mixing, x: Tensor) -> Tensor:
    return x.cumsum(1)


def shifted(model: Mixing, x: Tensor) -> Tensor:
    return torch.cat([x[:, 1:], x[:, :1]], 1)


def turned(model: Mixing, x: Tensor) -> Tensor:
    return x.flip(1)


MIXES = {
    convolution: "convolution",
    mean: "(mean|sum)",
    linear_mean: "(mean|sum)",
    largest: "amax",
    both_ways: "attention: it attends to later tokens",
    masked: "attention: it has a mask",
    scores: "it combines tokens with other tokens",
    linear_attention: "it combines tokens with other tokens",
    state: "bmm",
    running_sum: "cumsum: a token's result depends on other tokens",
    shifted: "(slice|cat)",
    turned: "flip",
}


def _pairs() -> Batch:
    return torch.randint(0, VOCAB, (8, 12)), torch.randint(0, VOCAB, (8, 12))


def _compile(model: Callable[[], nn.Module], batch: Batch, loss: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    given = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 2, "fuse": False, **options}
    return compile_step(made, optimizer, batch, loss=loss, **given)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mix", MIXES, ids=[mix.__name__ for mix in MIXES])
def test_what_mixes_tokens_is_refused(mix: Callable[[Mixing, Tensor], Tensor]) -> None:
    with pytest.raises(NotCausal, match=MIXES[mix]) as caught:
        _compile(lambda: Mixing(mix), _pairs(), lambda output, batch: output, schedule="terapipe")
    assert "test_token_slices.py:" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "t5", "mamba"])
def test_models_without_causal_attention_are_refused(name: str) -> None:
    training = PIPELINED.get(name) or TRAININGS[name]
    with pytest.raises(NotCausal, match=r"at: .*transformers"):
        _compile(training.model, training.batch(), None, schedule="terapipe")


def test_a_token_alone_is_what_it_is() -> None:
    """Nothing mixes tokens here but dropout's numbers, which count from the start of the sequence."""
    step = _compile(
        lambda: Mixing(lambda model, x: F.dropout(torch.tanh(x), 0.3)),
        _pairs(),
        lambda output, batch: output,
        schedule=by_name("seq-1f1b", 2, 2, slices=5),
        mesh={"pipe": 2, "data": 2},
        plan="pipeline*data",
    )
    assert step.check(steps=2).passed


class PerSample(Mixing):
    """Each sample counts the same, however many of its labels are to be ignored."""

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        scores = self.head(torch.tanh(self.inner(self.embed(ids))))
        losses = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        return (losses / (labels != -100).sum(1, keepdim=True)).sum() / labels.shape[0]


def test_what_is_known_of_all_labels_is_known_to_each_slice() -> None:
    ids, labels = _pairs()
    batch = ids, torch.where(torch.rand(labels.shape) < 0.3, -100, labels)
    step = _compile(lambda: PerSample(convolution), batch, lambda output, batch: output, schedule="terapipe")
    assert step.check().passed


class MeanOfAll(nn.Module):
    """Its loss is linear in the bias, whose gradient so is a constant that no token is in."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner = nn.Embedding(VOCAB, 16), nn.Linear(16, 16)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return self.inner(torch.tanh(self.embed(ids))).mean()


def test_a_gradient_that_all_slices_have_counts_once() -> None:
    step = _compile(MeanOfAll, _pairs(), lambda output, batch: output, schedule="terapipe")
    assert step.check().passed


def test_too_few_tokens() -> None:
    with pytest.raises(TooFewTokens, match="into 13 slices, but they have 12 tokens"):
        _compile(
            lambda: Mixing(lambda model, x: x),
            _pairs(),
            lambda output, batch: output,
            schedule=by_name("terapipe", 2, 2, slices=13),
        )


@pytest.mark.slow
def test_slices_and_what_goes_not_with_them() -> None:
    whole = by_name("terapipe", 2, 2, slices=2)
    split = orders(
        [
            part
            for a in order
            for part in ([a] if a.kind == "F" else [a._replace(kind="I"), a._replace(kind="W")])
        ]
        for order in whole.orders
    )
    cases = {
        "splits their backward": replace(whole, orders=split),
        "keeps old weights": replace(whole, updates=Updates(every=4)),
        "has several routes": replace(whole, routes=((0, 1), (1, 0))),
    }
    for why, schedule in cases.items():
        module = captured("llama").compile({"pipe": 2}, {}, 2).rank_module
        with pytest.raises(ScheduleNotYet, match=why):
            cut_into_stages(module, schedule, "pipe", stale_weights=True)
    asked = {
        "recomputes": {"policies": "full"},
        "memory_limit_bytes does not count": {"memory_limit_bytes": 1e9},
    }
    for why, options in asked.items():
        module = captured("llama").compile({"pipe": 2}, {}, 2).rank_module
        with pytest.raises(ScheduleNotYet, match=why):
            cut_into_stages(module, whole, "pipe", **options)
    step = capture(TRAININGS["llama"], noted=["model.layers.0"])
    module = step.compile({"pipe": 2}, {}, 2, recompute="full").rank_module
    with pytest.raises(ScheduleNotYet, match="recomputes"):
        cut_into_stages(module, whole, "pipe")


def test_a_slice_reads_keys_and_values_of_those_before_it() -> None:
    module = captured("llama").compile({"pipe": 2}, {}, 2).rank_module
    cut_into_stages(module, by_name("terapipe", 2, 2, slices=4), "pipe", ["model.layers.1"])
    widths = [_widths(module, f"stage_0_F{end}") for end in ("", "_1", "_2", "_3")]
    assert widths == [[4], [8], [12], [16]]


def _widths(module: ir.Module, name: str) -> list[int]:
    """How many keys each attention in a stage sees."""
    (stage,) = [
        o.operation
        for o in module.body.operations
        if o.operation.name == "pipe.stage" and o.operation.attributes["sym_name"].value == name
    ]
    ops = [o.operation for o in stage.regions[0].blocks[0].operations]
    found = [
        op
        for op in ops
        if "name" in op.attributes and op.attributes["name"].value == "torch.shardc.attention"
    ]
    keys = [read_type(op.operands[1].type) for op in found]
    return [type_.shape[2] for type_ in keys if type_ is not None]
