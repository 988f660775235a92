"""Thirty rank programs as they are emitted, carried out by PyTorch's ``LocalTensorMode``: two steps, equal to
eager training in f64.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from local_tensors import LocalTensorRanks
from models import TRAININGS
from training import captured, check_trained, trained

CASES: list[tuple[str, dict[str, int], str | Mapping[str, object], int]] = [
    ("llama", {"data": 4}, "zero1", 1),
    ("llama", {"data": 2, "tensor": 2}, "zero3*tensor", 1),
    ("llama", {"data": 2, "tensor": 2}, "zero2*sequence", 2),
    ("llama", {"context": 2}, "context", 1),
    ("llama", {"context": 4}, "context", 1),
    ("llama", {"data": 2, "context": 2}, "zero3*context", 2),
    ("llama", {"context": 2, "tensor": 2}, "context*sequence", 1),
    ("llama", {"data": 2, "context": 2, "tensor": 2}, "zero2*context*tensor", 1),
    ("gpt2", {"data": 3}, "data", 1),
    ("gpt2", {"tensor": 4}, "tensor", 1),
    ("gpt2", {"ring": 2, "ulysses": 2}, "ring*ulysses", 1),
    ("gpt2", {"data": 2, "tensor": 2}, "zero3*sequence", 2),
    ("bert", {"tensor": 3}, "tensor", 1),
    ("bert", {"data": 4}, "zero3", 1),
    ("bert", {"context": 4}, "context", 1),
    ("bert", {"data": 2, "context": 2}, "data*context", 1),
    ("t5", {"tensor": 2}, "tensor", 1),
    ("t5", {"context": 2}, "context", 1),
    ("t5", {"data": 2, "tensor": 2}, "zero1*sequence", 1),
    ("vit", {"data": 2}, "zero2", 2),
    ("vit", {"context": 2}, "context", 1),
    ("vit", {"data": 2, "tensor": 2}, "zero3*tensor", 1),
    ("mixtral", {"expert": 2}, "expert", 1),
    ("mixtral", {"data": 2, "expert": 2}, "zero3*expert", 2),
    ("mixtral", {"tensor": 2}, "tensor", 1),
    ("mixtral", {"context": 2}, "context", 1),
    ("mamba", {"tensor": 2}, "tensor", 1),
    ("convnet", {"data": 3}, "zero2", 1),
    ("convnet", {"rows": 2}, {"0": [None, None, "rows"]}, 1),
    ("convnet", {"data": 2, "rows": 2}, {"0": ["data", None, "rows"]}, 1),
]


@pytest.mark.sampled(1)
@pytest.mark.drawn(12)
@pytest.mark.parametrize(
    ("name", "mesh", "plan", "micro_batches"),
    CASES,
    ids=["-".join((name, *map(str, mesh.values()), *mesh)) for name, mesh, _, _ in CASES],
)
def test_equals_eager_training(
    name: str, mesh: dict[str, int], plan: str | Mapping[str, object], micro_batches: int
) -> None:
    step = captured(name)
    compiled = step.compile(mesh, plan, micro_batches)
    check_trained(LocalTensorRanks(step, compiled.unfused), TRAININGS[name], trained(name)[:2])
