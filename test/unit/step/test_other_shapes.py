"""Batches of other shapes than the example's: one more program each, over one state and by one plan."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import shardc
from shardc.diagnostics.api import BadBucket, ModelChanged, ShapeNotCompiled, TooManyShapes
from shardc.diagnostics.frontend import BatchUnsupported
from shardc.runtime import TrainStep
from shardc.runtime.errors import BatchMismatch
from shardc.step.compile_step import CompiledStep

F64 = torch.float64


@pytest.fixture(autouse=True)
def without_messages() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".(ShapeCompiled|ModeCompiled)")
        yield


def new_model(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(4, 8), nn.Tanh(), *([nn.Dropout(dropout)] if dropout else []), nn.Linear(8, 3)
    return nn.Sequential(*layers).to(F64)


def rows(count: int, start: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(64, 4, generator=generator, dtype=F64), torch.randint(0, 3, (64,), generator=generator)
    return x[start : start + count], y[start : start + count]


EPOCH = [rows(8), rows(8, 8), rows(5, 16)]
"""The batches of 21 rows in a loader with drop_last=False."""


def compiled(model: nn.Module | None = None, **options: Any) -> CompiledStep:
    model = new_model() if model is None else model
    optimizer = options.pop("optimizer", None) or torch.optim.AdamW(model.parameters(), lr=0.05)
    given = {"mesh": {"data": 1}, "loss": F.cross_entropy, "fuse": False, **options}
    return shardc.compile_step(model, optimizer, given.pop("batch", EPOCH[0]), **given)


def assert_same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9, check_dtype=False)


def trained(optimizer_of: Any, epochs: int = 2) -> tuple[list[float], nn.Module, torch.optim.Optimizer]:
    """Eager losses, model and optimizer."""
    model = new_model()
    optimizer, losses = optimizer_of(model.parameters()), []
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for x, y in EPOCH * epochs:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses, model, optimizer


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda params: torch.optim.AdamW(params, lr=0.05),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5),
    ],
    ids=["AdamW", "SGD with dampening"],
)
@pytest.mark.parametrize("first", [0, 2], ids=["large first", "small first"])
def test_two_epochs_with_an_incomplete_last_batch_are_those_of_eager(optimizer_of: Any, first: int) -> None:
    wanted, theirs, other = trained(optimizer_of)
    ours = new_model()
    optimizer = optimizer_of(ours.parameters())
    step = compiled(ours, optimizer=optimizer, batch=EPOCH[first])
    scheduler, losses = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5), []
    for x, y in EPOCH * 2:
        losses.append(step([x, y]).item())
        scheduler.step()
    assert losses == pytest.approx(wanted, rel=1e-9)
    assert step.steps_done == 6
    assert_same(ours.state_dict(), theirs.state_dict())
    for number, slots in other.state_dict()["state"].items():
        assert_same(optimizer.state_dict()["state"][number], slots)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ways", [1, 2, 4])
@pytest.mark.parametrize("plan", ["data", "zero3"])
def test_the_last_batch_of_5_rows_is_proved_on_1_2_and_4_devices(ways: int, plan: str) -> None:
    last = compiled(mesh={"data": ways}, plan=plan).for_batch(EPOCH[2])
    assert [a.shape for a in last.compiled.capture.with_role("input")] == [(5, 4), (5,)]
    assert last.check().passed


@pytest.mark.parametrize("count", [1, 3])
def test_fewer_rows_than_ways(count: int) -> None:
    step = compiled(mesh={"data": 4}, plan="zero2")
    few = step.for_batch(rows(count))
    assert few.check().passed


def test_other_shapes_keep_the_plan_of_the_first() -> None:
    """A plan by names says what is cut, whatever sizes there are."""

    class WithTable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4).to(F64)

        def forward(self, x: Tensor, table: Tensor) -> Tensor:
            return (self.body(x) @ table).square().mean()

    model = WithTable()
    table = torch.ones(4, 2, dtype=F64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    given = {"mesh": {"data": 2}, "fuse": False}
    example = {"x": rows(8)[0], "table": table}
    step = shardc.compile_step(model, optimizer, example, plan={"x": ["data", None]}, **given)
    other = step.for_batch({"table": table, "x": rows(4)[0]})
    assert other.compiled.plan_json["entries"] == step.compiled.plan_json["entries"]
    assert other.check().passed


def test_each_shape_compiles_once_with_a_message_at_the_users_line() -> None:
    step = compiled()
    step(EPOCH[0])
    with pytest.warns(
        UserWarning, match=r"\[ShapeCompiled\] compiled program 2 of at most 8, for batch "
    ) as seen:
        step(EPOCH[2])
    assert seen[0].filename == __file__
    assert "0 float64 [5, 4], 1 int64 [5]" in str(seen[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(EPOCH[2])
        step(EPOCH[0])
    assert step.for_batch(EPOCH[0]) is step and step.for_batch(EPOCH[2]) is step.for_batch(rows(5))


def test_a_limit_names_the_shapes_and_the_bucket_function() -> None:
    step = compiled(shapes_limit=2)
    step(rows(5))
    before = {name: value.clone() for name, value in step.state_dict().items()}
    with pytest.raises(
        TooManyShapes, match=r"(?s)\[6, 4\].*limit is 2.*\[8, 4\].*\[5, 4\].*bucket=fn"
    ) as error:
        step(rows(6))
    assert (error.value.where or "").startswith(__file__)
    assert step.steps_done == 1 and all(torch.equal(before[n], v) for n, v in step.state_dict().items())
    step(rows(8))


def test_a_bucket_function_pads_to_a_few_shapes() -> None:
    def padded(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = batch
        more = -len(x) % 4
        return F.pad(x, (0, 0, 0, more)), F.pad(y, (0, more), value=-100)

    model = new_model()
    step = compiled(model, bucket=padded, shapes_limit=2, batch=rows(7))
    for count in (7, 5, 8, 3, 4):
        x, y = rows(count)
        wanted = F.cross_entropy(model(x), y).item()
        assert step((x, y)).item() == pytest.approx(wanted, rel=1e-9), count


def none(batch: object) -> None:
    return None


def fails(batch: tuple[Tensor, Tensor]) -> object:
    return batch[0].shape[7]


@pytest.mark.parametrize(
    ("bucket", "message"),
    [
        (none, "function none returned a NoneType, which is not a batch: it holds no tensor"),
        (len, "function len returned a int, which is not a batch"),
        (fails, "function fails raised IndexError: tuple index out of range"),
    ],
)
def test_a_bucket_function_that_gives_no_batch_is_named_with_its_line(bucket: Any, message: str) -> None:
    with pytest.raises(BadBucket, match=message) as caught:
        compiled(bucket=bucket)
    assert (caught.value.where or "").startswith(__file__)


def test_a_shape_that_fits_nothing_is_named_with_the_line() -> None:
    step = compiled()
    step(rows(8))
    wide = torch.zeros(8, 9, dtype=F64)
    with pytest.raises(ShapeNotCompiled, match=r"for batch .*0 float64 \[8, 9\].*: TraceFailed") as caught:
        step((wide, rows(8)[1]))
    assert (caught.value.where or "").startswith(__file__)
    step(rows(8))


def test_a_shape_that_does_not_fit_the_pipeline_is_named() -> None:
    model = new_model()
    options = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "stages": ["2"]}
    step = compiled(model, **options)
    assert step.for_batch(rows(12)).check().passed
    with pytest.raises(ShapeNotCompiled, match=r"no program .* batch 0 float64 \[1, 4\], 1 int64 \[1\]"):
        step.for_batch(rows(1))


@pytest.mark.parametrize(
    "batch", [(rows(8)[0],), {"x": rows(8)[0]}, 3, (rows(8)[0], None)], ids=["part", "mapping", "3", "None"]
)
def test_another_structure_is_no_other_shape(batch: Any) -> None:
    step = compiled()
    with pytest.raises(BatchMismatch):
        step(batch)
    with pytest.raises(
        BatchUnsupported,
        match="its structure differs from the example batch",
    ):
        step.for_batch(batch)


def test_another_constant_is_another_program() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 1).to(F64)

        def forward(self, x: Tensor, factor: float) -> Tensor:
            return self.body(x).mean() * factor

    model = Scaled()
    x, _ = rows(8)
    step = compiled(model, loss=None, batch={"x": x, "factor": 2.0})
    wanted = model(x, 3.0).item()
    assert step({"x": x, "factor": 3.0}).item() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.slow
def test_modes_and_shapes_go_together() -> None:
    model = new_model(dropout=0.5)
    step = compiled(model)
    step(rows(5))
    model.eval()
    for count in (5, 8, 6):
        x, y = rows(count)
        wanted = F.cross_entropy(model(x), y).item()
        assert step((x, y)).item() == pytest.approx(wanted, rel=1e-9), count
    model.train()
    x, y = rows(5)
    assert step((x, y)).item() != pytest.approx(F.cross_entropy(model.eval()(x), y).item(), rel=1e-3)


def test_what_changed_since_the_first_program_is_no_part_of_another() -> None:
    model = new_model()
    step = compiled(model)
    step(rows(8))
    handle = model[0].weight.register_hook(lambda grad: grad * 3)
    with pytest.raises(ModelChanged, match="weight"):
        step(rows(5))
    handle.remove()
    step(rows(5))


def test_a_checkpoint_is_of_the_step_and_not_of_a_shape(tmp_path: Path) -> None:
    wanted, _, _ = trained(lambda params: torch.optim.AdamW(params, lr=0.05))
    first = compiled()
    optimizer = first._optimizer
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for batch in EPOCH:
        first(batch)
        scheduler.step()
    first.save_checkpoint(tmp_path / "c", objects={"scheduler": scheduler})
    model = new_model()
    again = torch.optim.AdamW(model.parameters(), lr=0.05)
    later = torch.optim.lr_scheduler.StepLR(again, 2, 0.5)
    second, losses = compiled(model, optimizer=again, batch=EPOCH[2]), []
    second(EPOCH[0])
    second.load_checkpoint(tmp_path / "c", objects={"scheduler": later})
    assert second.steps_done == 3
    for batch in EPOCH:
        losses.append(second(batch).item())
        later.step()
    assert losses == pytest.approx(wanted[3:], rel=1e-9)


def test_an_artefact_has_one_program(tmp_path: Path) -> None:
    step = compiled()
    step.for_batch(rows(5)).save(tmp_path / "five")
    assert TrainStep.load(tmp_path / "five")(rows(5)).item() == pytest.approx(step(rows(5)).item(), rel=1e-9)
    with pytest.raises(BatchMismatch, match=r"(?s)\[8, 4\]; the program takes float64 \[5, 4\].*compile for"):
        TrainStep.load(tmp_path / "five")(rows(8))


def test_a_ranks_own_part_is_of_the_examples_sizes() -> None:
    with pytest.raises(BatchMismatch, match=r"(?s)\[5, 4\].*or the global batch to step\(batch\)"):
        compiled().local(rows(5))
