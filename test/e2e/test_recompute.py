"""Recomputation of transformers' layers, traced once and copied: the training that PyTorch does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from models import TRAININGS, Training, gpt2, sgd, tokens
from training import capture, check_equal, train_eagerly

from shardc.backends.eager.proof.compare import prove_step
from shardc.options.parallelism import Parallelism
from shardc.options.recompute import Recompute
from shardc.step.modules.recomputed import recomputed
from shardc.step.values import example_inputs

DROPOUT = Training(partial(gpt2, dropout=0.2), tokens, sgd)


def noted(training: Training, recompute: Recompute) -> Sequence[str]:
    return recomputed(training.fresh(), Parallelism({"data": 1}, recompute=recompute))


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["full", "selective", ("*.mlp", "*.attn")])
def test_dropout_is_drawn_again_as_it_was(recompute: Recompute) -> None:
    step = capture(DROPOUT, noted=noted(DROPOUT, recompute))
    compiled = step.compile({"data": 2, "tensor": 2}, "zero3*tensor", recompute=recompute)
    inputs = example_inputs(step.capture, step.optimizer, DROPOUT.batches(1)[0])
    proof = prove_step(compiled.global_module, compiled.program, inputs, steps=2)
    assert proof.passed, proof.render()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "plan", "micro_batches"),
    [({"data": 2, "tensor": 2}, "zero3*sequence", 1), ({"data": 2}, "zero2", 2)],
)
def test_llama_trains_as_in_pytorch(mesh: dict[str, int], plan: str, micro_batches: int) -> None:
    training = TRAININGS["llama"]
    step = capture(training, noted=noted(training, "full"))
    assert all(name.startswith("model.layers.") for name in step.capture.noted)
    compiled = step.compile(mesh, plan, micro_batches, recompute="full")
    check_equal(step, compiled, training, train_eagerly(training))
