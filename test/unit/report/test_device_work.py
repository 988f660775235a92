"""A device's work compared with one device's: divided evenly, repeated, padded, over stages."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.step.compile_step import CompiledStep


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32, bias=False), nn.Linear(32, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu()).square().mean()


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, bias=False), nn.ConvTranspose2d(4, 3, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).square().mean()


def compiled(
    mesh: dict[str, int], plan: object, model: nn.Module | None = None, rows: int = 8
) -> CompiledStep:
    model = Net() if model is None else model
    batch = {"x": torch.randn(rows, 3, 6, 6) if isinstance(model, Pixels) else torch.randn(rows, 8)}
    optimizer = torch.optim.AdamW(model.parameters())
    return shardc.compile_step(model, optimizer, batch, mesh=mesh, plan=plan, fuse=False)


# The forward multiplies 8 rows by two weights of 256 elements, the backward each by another two; the input
# needs no gradient.
NET_FLOPS = 2 * 8 * 256 * 5


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("mesh", "plan", "share"),
    [
        ({"data": 2, "tensor": 2}, "data*tensor", 0.25),
        ({"data": 4}, "zero3", 0.25),
        ({"data": 2, "tensor": 2}, "data", 0.5),
        ({"data": 2}, {}, 1.0),
    ],
)
def test_products_of_a_device(mesh: dict[str, int], plan: object, share: float) -> None:
    plan = {"up.weight": [None, None]} if plan == {} else plan
    work = compiled(mesh, plan).compiled.work
    assert sum(w.flops for w in work.single) == NET_FLOPS
    assert work.share == share


def test_what_is_repeated_is_said_with_its_axis_and_line() -> None:
    report = compiled({"data": 2, "tensor": 2}, "data").plan
    (remark,) = [r for r in report.remarks if r.name == "WorkRepeated"]
    assert "100% of the step's floating-point operations" in remark.message
    assert "not cut along tensor: each of 2 devices does them all" in remark.message
    assert remark.where is not None and "test_device_work.py:" in remark.where
    assert "(evenly divided: 0.250)" in report.render() and remark.message in report.render()
    even = compiled({"data": 2, "tensor": 2}, "data*tensor").plan
    assert not [r for r in even.remarks if r.name == "WorkRepeated"]


def test_the_remark_can_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    step = compiled({"data": 2, "tensor": 2}, "data")
    monkeypatch.setenv("SHARDC_SILENCE", "WorkRepeated")
    assert not [r for r in step.plan.remarks if r.name == "WorkRepeated"]


def test_padded_rows_count() -> None:
    assert compiled({"data": 4}, "data", rows=6).compiled.work.share == pytest.approx(2 / 6)


def test_micro_batches_are_all_counted() -> None:
    step = shardc.compile_step(
        (model := Net()),
        torch.optim.SGD(model.parameters()),
        {"x": torch.randn(8, 8)},
        mesh={"data": 2},
        plan="data",
        micro_batches=2,
        fuse=False,
    )
    assert step.compiled.work.share == 0.5


def test_convolutions() -> None:
    """Each weight of 4 x 3 x 3 x 3 meets 8 x 4 x 4 positions, forward and twice or once backward."""
    work = compiled({"data": 2}, "data", Pixels()).compiled.work
    once = 2 * 8 * 4 * 4 * (4 * 3 * 3 * 3)
    assert sum(w.flops for w in work.single) == once * 5
    assert work.share == 0.5


def test_one_device_has_no_table() -> None:
    assert "work of a device" not in compiled({"data": 1}, "data").plan.render()


def test_stages_of_a_pipeline_repeat_nothing() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    step = shardc.compile_step(
        model,
        torch.optim.SGD(model.parameters()),
        {"input": torch.randn(8, 8)},
        loss=lambda out, _: out.square().mean(),
        mesh={"pipe": 2},
        plan="pipeline",
        micro_batches=2,
        fuse=False,
    )
    report = step.plan
    assert not [r for r in report.remarks if r.name == "WorkRepeated"]
