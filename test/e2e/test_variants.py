"""Plans, meshes and settings that ``test_oracle.py`` has not: three steps against eager training, to 1e-9."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from models import TRAININGS, Training, bert, gpt2, llama, masked_tokens, tokens
from training import Captured, Ranks, Values, capture, captured, check_equal, train_eagerly, trained

from shardc.backends.eager.program import find_step
from shardc.backends.eager.proof.compare import compare_step
from shardc.step.values import example_inputs

TWO, FOUR, GRID = {"data": 2}, {"data": 4}, {"data": 2, "tensor": 2}
CUBE = {"replica": 2, "data": 2, "tensor": 2}


@dataclass(frozen=True)
class Case:
    model: str
    mesh: dict[str, int]
    plan: Any
    micro_batches: int = 1

    def __str__(self) -> str:
        mesh = "-".join(f"{name}{size}" for name, size in self.mesh.items())
        plan = "mapping" if isinstance(self.plan, dict) else self.plan
        return f"{self.model}-{mesh}-{plan}" + (
            f"-micro{self.micro_batches}" if self.micro_batches > 1 else ""
        )


CASES = [
    *(Case(name, TWO, "data", 2) for name in TRAININGS),
    Case("llama", FOUR, "zero1"),
    Case("gpt2", FOUR, "zero2"),
    Case("llama", GRID, "zero2*tensor", 2),
    Case("llama", GRID, "zero3*sequence", 4),  # one sequence a device and micro-batch
    Case("llama", GRID, "data*sequence", 4),
    Case("bert", GRID, "zero3*sequence"),
    Case("mamba", GRID, "zero3*sequence"),
    # Two heads of keys and values on four ranks: cut by half of the axis.
    Case("llama", {"tensor": 4}, "tensor"),
    Case("mixtral", {"tensor": 4}, "tensor"),
    # Hybrid sharding: state cut over `data`, batch over `replica` too.
    Case("llama", CUBE, "data:replica*zero3:data*sequence"),
    Case("convnet", CUBE, "data:replica*zero3:data"),
    Case("t5", CUBE, "data:replica*zero3:data*tensor", 2),
    Case(
        "llama",
        GRID,
        {
            "input_ids": ["data"],
            "labels": ["data"],
            "*_proj.weight": ["tensor", "data"],
            "lm_head.weight": [["data", "tensor"]],
        },
    ),
    Case(
        "bert",
        GRID,
        {"input_ids": [["data", "tensor"]], "attention_mask": [["data", "tensor"]], "*.weight": ["data"]},
    ),
    Case("llama", GRID, {"input_ids": [None, "data"], "labels": [None, "data"], "*.mlp.*": ["tensor"]}),
    Case("convnet", GRID, {"0": [None, None, "data", "tensor"]}),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_eager_training(case: Case) -> None:
    step = captured(case.model)
    compiled = step.compile(case.mesh, case.plan, case.micro_batches)
    check_equal(step, compiled, TRAININGS[case.model], trained(case.model))


CLIP = 0.1  # far below the gradients' norm


@cache
def clipped() -> tuple[Training, Captured, list[Values]]:
    """A Llama with tied embeddings whose gradients are clipped."""
    training = Training(partial(llama, tie_word_embeddings=True), tokens)
    return training, capture(training, CLIP), train_eagerly(training, clip=CLIP)


def test_a_plain_update_over_several_loops() -> None:
    """Batch norm takes a loop for each norm; the learning rate's sign is turned in front of the loop that
    reads it first.
    """
    training = replace(
        TRAININGS["convnet"], optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1)
    )
    step = capture(training)
    compiled = step.compile(TWO, "data", 4)
    assert compiled.rank_module.operation.verify()
    check_equal(step, compiled, training, train_eagerly(training))


@pytest.mark.slow
@pytest.mark.parametrize(
    "mesh, plan, micro", [(FOUR, "zero3", 1), (GRID, "zero1*tensor", 2)], ids=["zero3", "micro2"]
)
def test_clipping_and_tied_weights(mesh: dict[str, int], plan: str, micro: int) -> None:
    training, step, wanted = clipped()
    free = train_eagerly(training, steps=1)[0]
    name = ("opt_state", "model.norm.weight/exp_avg")
    assert not free[name].allclose(wanted[0][name]), "clipping changed nothing"
    assert step.capture.tied == {"lm_head.weight": "model.embed_tokens.weight"}
    check_equal(step, step.compile(mesh, plan, micro), training, wanted)


@pytest.mark.slow
def test_saved_plan(tmp_path: Path) -> None:
    """A plan that was saved makes the same program again."""
    step = captured("llama")
    first = step.compile(GRID, "zero3*tensor")
    (tmp_path / "plan.json").write_text(json.dumps(first.plan_json))
    again = step.compile(GRID, tmp_path / "plan.json")
    check_equal(step, again, TRAININGS["llama"], trained("llama"))
    assert _signature(again) == _signature(first)


def _signature(compiled: Any) -> list[str]:
    """The ops of the rank program, without the attributes that say who asked for what."""
    function = find_step(compiled.rank_module)
    assert function is not None
    return [op.operation.name for op in function.regions[0].blocks[0].operations]


DROPOUT = {
    "gpt2": Training(partial(gpt2, dropout=0.2), tokens),
    "bert": Training(partial(bert, dropout=0.2), masked_tokens),
}


@cache
def with_dropout(name: str) -> Captured:
    return capture(DROPOUT[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", DROPOUT)
@pytest.mark.parametrize(
    "mesh, plan, micro",
    [(TWO, "data", 1), ({"tensor": 2}, "tensor", 1), (GRID, "zero3*sequence", 1), (GRID, "zero1*tensor", 2)],
    ids=["data", "tensor", "sequence", "micro"],
)
def test_dropout_does_not_depend_on_the_mesh(name: str, mesh: dict[str, int], plan: str, micro: int) -> None:
    """Eager training draws other numbers, so the reference is the captured step on one device."""
    step = with_dropout(name)
    compiled = step.compile(mesh, plan, micro)
    inputs = example_inputs(step.capture, step.optimizer, DROPOUT[name].batches(1)[0])
    outcome = compare_step(compiled.global_module, compiled.rank_module, inputs, steps=2)
    assert outcome.passed, outcome.render(5)
    assert not outcome.unobserved


@pytest.mark.slow
@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_drops(name: str) -> None:
    """With another seed the loss is another."""
    step = with_dropout(name)
    module = step.compile(TWO, "data").rank_module
    batches = DROPOUT[name].batches(1)
    losses = [Ranks(step, module, seed).train(batches)[0][0]["loss", "loss"] for seed in (0, 7)]
    assert (losses[0] - losses[1]).abs() > 1e-3
