"""A sequence that devices share out: equal to eager training, and a device's part of the work."""

from __future__ import annotations

from math import prod

import pytest
import torch
from models import TRAININGS, Training, llama, sgd, sum_of_squares
from torch import nn
from training import capture, check_equal, train_eagerly

import shardc


def _llama(batch: int, length: int) -> Training:
    def tokens() -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 64, (batch, length))
        return {"input_ids": ids, "labels": ids.clone()}

    return Training(llama, tokens)


CASES = [
    ("context", {"context": 4}, (4, 16), 1),
    ("context", {"context": 2}, (1, 16), 1),
    ("context", {"context": 2}, (3, 15), 1),
    ("data*context", {"data": 2, "context": 2}, (3, 14), 1),
    ("zero3*context", {"data": 2, "context": 2}, (4, 16), 2),
    ("ulysses", {"context": 2}, (3, 16), 1),
    ("ulysses", {"context": 4}, (2, 16), 1),
    ("ulysses", {"context": 4}, (2, 14), 1),
    ("zero3*ulysses", {"data": 2, "context": 2}, (4, 15), 2),
    ("ulysses*tensor", {"context": 2, "tensor": 2}, (3, 15), 1),
    ("zero3*ulysses", {"data": 2, "context": 2}, (4, 16), 2),
    ("ulysses*tensor", {"context": 2, "tensor": 2}, (3, 16), 1),
    ("allgather:outer*ulysses:context", {"outer": 2, "context": 2}, (2, 16), 1),
    ("zero2*context*sequence", {"data": 2, "context": 2, "tensor": 2}, (4, 16), 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "mesh", "sizes", "micro_batches"), CASES)
def test_a_sequence_is_cut_in_any_batch(
    plan: str, mesh: dict[str, int], sizes: tuple[int, int], micro_batches: int
) -> None:
    training = _llama(*sizes)
    step = capture(training, clip=0.5)
    compiled = step.compile(mesh, plan, micro_batches)
    check_equal(step, compiled, training, train_eagerly(training, clip=0.5))
    padded = [
        -(-size // ways) * ways
        for size, ways in zip(sizes, (mesh.get("data", 1), mesh["context"]), strict=True)
    ]
    assert compiled.work.share <= 1.05 * prod(padded) / prod(sizes) / prod(mesh.values())


RINGS = [
    ("ring", {"ring": 4}, (2, 16)),
    ("zero3*ring", {"data": 2, "ring": 2}, (4, 16)),
    ("ring*sequence", {"ring": 2, "tensor": 2}, (3, 16)),
    ("ring*ulysses", {"ring": 2, "ulysses": 2}, (2, 16)),
]
"""With one micro-batch and with two; an odd batch is padded."""


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize(("plan", "mesh", "sizes"), RINGS)
def test_keys_travel(plan: str, mesh: dict[str, int], sizes: tuple[int, int], micro_batches: int) -> None:
    training = _llama(*sizes)
    step = capture(training, clip=0.5)
    compiled = step.compile(mesh, plan, micro_batches)
    assert "ring_attention" in compiled.levels["2-annotated"]
    check_equal(step, compiled, training, train_eagerly(training, clip=0.5))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "vit", "mixtral"])
def test_of_any_model(name: str) -> None:
    """ViT has five patches, computed as six."""
    training = TRAININGS[name]
    step = capture(training)
    compiled = step.compile({"context": 2}, "context")
    check_equal(step, compiled, training, train_eagerly(training))
    assert compiled.work.share <= (0.56 if name == "vit" else 0.5001)


class Heard(nn.Module):
    """Convolutions over time, each of which halves it, and linear layers behind."""

    def __init__(self, bands: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv1d(c, 16, 5, stride=2, padding=2) for c in (bands, 8))
        self.places = nn.Embedding(16, 8)
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        heard = features.transpose(1, 2)
        for convolution in self.convolutions:
            heard = nn.functional.glu(convolution(heard), dim=1)
        heard = heard.transpose(1, 2)
        return self.layers(heard + self.places(torch.arange(heard.shape[1])))


@pytest.mark.parametrize(("bands", "ways"), [(6, 2), (6, 4), (80, 4)])
def test_time_of_features(bands: int, ways: int) -> None:
    """Time is what convolutions move along, even if there are more bands."""
    training = Training(lambda: Heard(bands), lambda: (torch.randn(3, 64, bands),), sgd, sum_of_squares)
    step = capture(training)
    compiled = step.compile({"context": ways}, "context")
    check_equal(step, compiled, training, train_eagerly(training))
    assert compiled.work.share <= 1.01 / ways


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["context", "ring"])
def test_in_a_pipeline(preset: str) -> None:
    training = _llama(4, 16)
    model = training.fresh()
    (batch,) = training.batches(1)
    optimizer, mesh = training.optimizer(model), {"context": 2, "pipe": 2}
    plan = f"{preset}*pipeline"
    step = shardc.compile_step(model, optimizer, batch, mesh=mesh, plan=plan, micro_batches=2)
    assert step.check().passed
