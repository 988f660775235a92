"""Waveforms under ``context``: windows of samples, none of whose numbers divides, are shared out evenly.

Two steps, gradients included, are those of one device, in f64 and as compiled; ranks trade halos and sums
alone, and a device computes its share.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import shardc
from shardc.report.traffic import transfers
from shardc.step.compile_step import CompiledStep

SAMPLES = 4003
"""They make 799 windows, then 399, 199, and 99."""
CUTS = {"context": 4, "data*context": 2}


class Encoder(nn.Module):
    """The layers of wav2vec 2.0: strided windows, a group norm along all samples, and positions from a
    convolution whose even kernel makes one element too many.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 8, 10, 5), (8, 8, 3, 2), (8, 8, 3, 2), (8, 8, 2, 2))
        self.windows = nn.ModuleList(nn.Conv1d(*size, bias=False) for size in sizes)
        self.samples_norm = nn.GroupNorm(8, 8)
        self.norm = nn.LayerNorm(8)
        self.project = nn.Linear(8, 16)
        self.positions = nn.Conv1d(16, 16, 8, padding=4, groups=4)
        self.near = nn.Conv1d(16, 16, 5, padding=2, groups=16)
        self.head = nn.Linear(16, 5)

    def forward(self, waveform: Tensor) -> Tensor:
        x = waveform[:, None]
        for number, layer in enumerate(self.windows):
            x = layer(x)
            x = F.gelu(self.samples_norm(x) if number == 0 else x)
        x = self.project(self.norm(x.transpose(1, 2))).transpose(1, 2)
        x = x + F.gelu(self.positions(x)[:, :, :-1])
        return self.head((x + self.near(x)).transpose(1, 2))


def loss(output: Tensor, batch: tuple[Tensor]) -> Tensor:
    return (output - torch.arange(output.shape[-1])).square().mean()


def compiled(model: nn.Module, samples: int, plan: str, ways: int) -> CompiledStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    mesh = {"data": 2, "context": ways} if "data" in plan else {"context": ways}
    return shardc.compile_step(model, optimizer, (torch.randn(4, samples),), loss=loss, mesh=mesh, plan=plan)


@pytest.mark.parametrize("plan", CUTS)
def test_an_encoder(plan: str) -> None:
    torch.manual_seed(0)
    step = compiled(Encoder(), SAMPLES, plan, CUTS[plan])
    proof = step.check()
    assert proof.passed, proof.render()
    found = transfers(step.compiled.rank_module)
    assert {t.kind for t in found} == {"exchange", "all_reduce", "all_gather"}
    # The gradient of the slice that leaves the last position out.
    assert [(t.phase, t.type.shape[1]) for t in found if t.kind == "all_gather"] == [("backward", 16)]
    assert step.compiled.work is not None
    assert step.compiled.work.share < 1.05 / 4


@pytest.mark.parametrize(
    ("samples", "windows", "step", "more"), [(64, 4, 4, 16), (61, 6, 4, 16), (60, 3, 1, 60)]
)
def test_a_device_computes_equal_blocks_of_windows(samples: int, windows: int, step: int, more: int) -> None:
    """15, 14 and 58 windows are computed as 16, 16 and 60."""
    model = nn.Sequential(nn.Unflatten(1, (1, samples)), nn.Conv1d(1, 2, windows, step))
    made = compiled(model, samples, "context", 4)
    convolved = [
        str(op.results[0].type)
        for op in made.compiled.rank_module.body.operations[-1].regions[0].blocks[0]
        if "convolution" in str(op) and "backward" not in str(op)
    ]
    assert f"[4,2,{more // 4}]" in convolved[0]


def test_features_without_convolutions_stay_whole() -> None:
    """Two dims of floats are not taken for samples unless windows move along one."""
    step = compiled(nn.Linear(64, 8), 64, "context", 2)
    assert not transfers(step.compiled.rank_module)
