"""Unequal shares: work, state and collectives of a Llama, and plans that cannot have them."""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

import shardc
from shardc.diagnostics.passes.plan import BadPlanFile
from shardc.diagnostics.passes.shares import (
    ShareBesideOther,
    SharesOfNoBatch,
    SharesUnsupported,
    ShareWithoutRows,
)
from shardc.passes.plan.shares import apportioned
from shardc.report.traffic import transfers
from shardc.step.compile_step import CompiledStep

SHARES = {"data": [3, 1]}


def llama(plan: object, mesh: dict[str, int], *, rows: int = 8, **options: object) -> CompiledStep:
    """A step of two layers, of sequences of 16 tokens."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
    ids = torch.randint(0, 64, (rows, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = {"input_ids": ids, "labels": ids}
    given = {"shares": SHARES, "fuse": False, **options}
    return shardc.compile_step(model, optimizer, batch, mesh=mesh, plan=plan, **given)


def layers(plan: object, mesh: dict[str, int], rows: int = 8, **options: object) -> CompiledStep:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.1), (torch.randn(rows, 4),)
    given = {"shares": SHARES, "fuse": False, **options}
    return shardc.compile_step(
        model, optimizer, batch, loss=lambda y, _: y.mean(), mesh=mesh, plan=plan, **given
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "mesh", "work", "state"),
    [
        ("data", {"data": 2}, 3 / 4, 1),
        ("zero1", {"data": 2}, 3 / 4, 1 / 2),
        ("zero3", {"data": 2}, 3 / 4, 1 / 2),
        ("zero3*tensor", {"data": 2, "tensor": 2}, 3 / 8, 1 / 4),
    ],
)
def test_work_is_the_largest_share(plan: str, mesh: dict[str, int], work: float, state: float) -> None:
    """State stays in equal parts. Norms' weights are not cut by ``tensor``: 1% of the state."""
    step = llama(plan, mesh)
    assert step.compiled.work.share == pytest.approx(work)
    whole = llama("data", {"data": 1}, shares=None).plan.local_bytes["opt_state"]
    assert step.plan.local_bytes["opt_state"] / whole == pytest.approx(state, rel=0.02)


@pytest.mark.slow
def test_collectives_stand_outside_of_the_loop() -> None:
    """Parameters are gathered once, gradients scattered once; the loop has none along ``data``."""
    step = llama("zero3", {"data": 2})
    found = Counter((t.kind, t.axes, t.times) for t in transfers(step.compiled.rank_module))
    assert {axes for _, axes, _ in found} == {("data",)} and {times for *_, times in found} == {1}
    moved = Counter[str]()
    for transfer in transfers(step.compiled.rank_module):
        moved[transfer.kind] += int(transfer.bytes_moved) if transfer.type.numel > 1 else 0
    parameters = sum(prod(a.shape) for a in step.compiled.capture.arguments if a.role == "param") * 4
    assert moved == {"all_gather": parameters / 2, "reduce_scatter": parameters / 2, "all_reduce": 0}


@pytest.mark.slow
def test_each_rank_runs_its_own_iterations() -> None:
    text = llama("data", {"data": 2}).compiled.program_text
    assert "data__shares = (range(0, 3), range(3, 4))[rank.index(DATA)]" in text
    assert len(re.findall(r"for data__share\w* in data__shares:", text)) == 2  # of labels, and of the rest


@pytest.mark.slow
def test_a_report_says_the_shares() -> None:
    assert "data 2 x data/share 4 (time, 3:1)" in str(llama("data", {"data": 2}).plan)


def test_a_saved_plan_knows_its_shares(tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    step = layers("zero1", {"data": 2})
    step.save_plan(saved)
    assert layers(saved, {"data": 2}).compiled.plan.entries == step.compiled.plan.entries
    for other in (None, {"data": [1, 3]}):
        with pytest.raises(BadPlanFile, match="made for the mesh data=2, data/share="):
            layers(saved, {"data": 2}, shares=other)


def test_plans_that_cut_no_batch() -> None:
    with pytest.raises(SharesOfNoBatch, match="'tensor'"):
        layers("tensor", {"tensor": 2}, shares={"tensor": [3, 1]})


def test_a_batch_of_two_axes() -> None:
    with pytest.raises(ShareBesideOther, match="also sharded along other"):
        layers("data*data:other", {"data": 2, "other": 2})


def test_sequences_have_no_shares() -> None:
    with pytest.raises(ShareBesideOther, match="also sharded along dim 1"):
        llama("context", {"context": 2}, shares={"context": [3, 1]})


def test_experts_have_no_shares() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2}
    model = MixtralForCausalLM(MixtralConfig(**sizes, **heads))
    ids = torch.randint(0, 32, (8, 8))
    with pytest.raises(SharesUnsupported, match="experts along it"):
        shardc.compile_step(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            {"input_ids": ids, "labels": ids},
            mesh={"expert": 2},
            plan="expert",
            shares={"expert": [3, 1]},
        )


@pytest.mark.parametrize(("rows", "weights", "nearest"), [(5, [7, 1], "4:1"), (5, [3, 1], "3:2")])
def test_a_batch_that_leaves_a_device_none(rows: int, weights: list[int], nearest: str) -> None:
    with pytest.raises(ShareWithoutRows) as caught:
        layers("data", {"data": 2}, rows, shares={"data": weights})
    assert f"use shares {nearest}, or" in caught.value.render()
    total = [int(n) for n in nearest.split(":")]
    assert layers("data", {"data": 2}, rows, shares={"data": total}).check().passed


@pytest.mark.parametrize("rows", [2, 3, 5, 8, 17])
def test_rows_are_all_given_out(rows: int) -> None:
    found = apportioned(rows, (3, 1))
    assert sum(found) == rows and min(found) >= 1
