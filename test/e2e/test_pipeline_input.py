"""Errors of impossible pipelines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from models import ConvNet, sum_of_squares
from pipelines import Skips, Tower, rows
from torch import nn

from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.passes import pipeline as errors
from shardc.diagnostics.passes.plan import TooManyWays, UnknownAxis
from shardc.diagnostics.passes.recompute import NoRepeatedLayers
from shardc.dialects.pipe.schedule import Updates
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.step.compile_step import compile_step


def compile_pipeline(model: nn.Module, batch: Any, **options: Any) -> object:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "fuse": False, **options}
    return compile_step(model, optimizer, batch, **given)


WRONG = {
    "no micro-batches": (
        errors.NoMicroBatches,
        {"micro_batches": 1},
        "nothing in this step is split into any",
    ),
    "unknown cut": (
        errors.UnknownCut,
        {"stages": ["layers.44"]},
        "no module 'layers.44' .* the nearest is 'layers.4'",
    ),
    "cuts the wrong way": (
        errors.CutOrder,
        {"stages": ["layers.4", "layers.2", "layers.6"], "schedule": "interleaved"},
        "cannot start at 'layers.2': it does not start after 'layers.4'",
    ),
    "cut at the start": (
        errors.CutOrder,
        {"stages": ["layers.0"]},
        "no module with parameters runs before it",
    ),
    "stages for another schedule": (errors.BadStages, {"stages": 4}, "1f1b cannot put 4 stages on 2 ranks"),
    "too many stages": (
        errors.TooManyStages,
        {"stages": 200, "schedule": "interleaved"},
        "200 stages need 200 ops .*, but the forward has",
    ),
    "unknown schedule": (
        errors.UnknownSchedule,
        {"schedule": "1f2b"},
        "no schedule '1f2b'; the nearest is '1f1b'",
    ),
    "no groups": (
        errors.BadMicroBatches,
        {"micro_batches": 3, "schedule": "interleaved"},
        "needs a multiple of 2 micro-batches, not 3",
    ),
    "no sequences to slice": (errors.NotCausal, {"schedule": "terapipe"}, "cannot run slice by slice"),
    "stale weights": (
        errors.ChangesMathematics,
        {"schedule": "pipedream"},
        "pipedream changes the mathematics",
    ),
    "groups that do not close": (
        errors.BadSchedule,
        {"schedule": replace(by_name("1f1b", 2, 4), updates=Updates(3)), "stale_weights": True},
        "updates weights after every 3 micro-batches, which do not divide 4",
    ),
    "stale weights or not": (BadArgument, {"stale_weights": "yes"}, "True or False"),
    "no file": (errors.BadScheduleFile, {"schedule": "mine.csv"}, "mine.csv can't be read"),
    "no pipeline": (
        errors.NotAPipeline,
        {"plan": "data", "mesh": {"data": 2}, "schedule": "1f1b"},
        "plan 'data' has no pipeline",
    ),
    "no axis": (UnknownAxis, {"mesh": {"data": 2}}, "pipe"),
    "unknown recomputation": (
        BadArgument,
        {"recompute": "ful"},
        "not none, full or selective, .*; did you mean 'full'",
    ),
    "recomputation of other stages": (
        errors.WrongRecompute,
        {"recompute": ["full"]},
        r"for 1 stages, but the step has 2(.|\n)*\['full', 'none'\]",
    ),
    "no recomputation": (BadArgument, {"recompute": 2}, "none, full or selective"),
    "recomputation without layers": (
        NoRepeatedLayers,
        {"plan": "data", "mesh": {"data": 2}, "recompute": "full"},
        "no list of the model has two modules that contain others",
    ),
    "no stages": (BadArgument, {"stages": 0}, "a whole number from 1, or names of modules"),
    "no schedule": (BadArgument, {"schedule": 1}, "the name of a schedule, a CSV file, or a schedule"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    error, options, message = WRONG[case]
    with pytest.raises(error, match=message):
        compile_pipeline(Skips(), rows(), loss=lambda output, batch: output, **options)


FILES = {
    "another stage count": ("0F0,0B0\n1F0,1B0\n2F0,2B0\n", errors.WrongStages, "is for 3 ranks, not for 2"),
    "too few micro-batches": ("0F0,0B0\n1F0,1B0\n", errors.WrongStages, "is for 1 micro-batches, not for 4"),
    "no backward": (
        "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2\n",
        errors.BadSchedule,
        "1B3 is missing",
    ),
    "no action": ("0F0,F1\n", errors.BadAction, "'F1' is not an action"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", FILES)
def test_what_is_wrong_with_a_file_is_named(case: str, tmp_path: Path) -> None:
    text, error, message = FILES[case]
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(error, match=message):
        compile_pipeline(Tower(), (torch.randn(16, 64),), loss=sum_of_squares, schedule=tmp_path / "mine.csv")


def test_batch_norm_over_micro_batches_is_refused() -> None:
    with pytest.raises(errors.SeveralLoops, match="micro-batches cannot run separately") as caught:
        compile_pipeline(ConvNet(), (torch.randn(8, 3, 16, 16),), loss=sum_of_squares)
    assert "models.py:" in str(caught.value)


def test_a_schedule_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0\n1F0,1F1,1F2,1F3,1B3,1B2,1B1,1B0\n")
    step = compile_pipeline(
        Tower(), (torch.randn(16, 64),), loss=sum_of_squares, schedule=tmp_path / "mine.csv", verify=True
    )
    assert "3-pipeline" in step.compiled.levels  # type: ignore[attr-defined]


def test_the_report_says_who_holds_and_sends_what() -> None:
    step = compile_pipeline(Tower(), (torch.randn(16, 64),), loss=sum_of_squares, stages=["layers.6"])
    report = step.plan  # type: ignore[attr-defined]
    assert report.pipeline is not None
    first, second = report.pipeline.ranks
    layer = (64 * 64 + 64) * 4
    assert (first.state_bytes, second.state_bytes) == (6 * layer, 2 * layer)
    activation = 4 * 64 * 4
    assert first.sent_bytes == 4 * activation
    assert second.sent_bytes == 4 * activation + 4  # gradients, and the loss
    assert "pipeline: 1f1b, 2 stages, 4 micro-batches" in str(report)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", ["mean of what counts", "sum"])
def test_micro_batches_of_different_sizes(model: str) -> None:
    """Ten samples in four micro-batches: the last is filled up, and what fills it counts for nothing."""
    labels = torch.where(torch.rand(10) < 0.3, -100, torch.randint(0, 8, (10,)))
    if model == "sum":
        compile_pipeline(Tower(), (torch.randn(10, 64),), loss=sum_of_squares, verify=True)
    else:
        compile_pipeline(
            Skips(), (torch.randn(10, 8), labels), loss=lambda output, batch: output, verify=True
        )


def test_fewer_samples_than_micro_batches() -> None:
    with pytest.raises(TooManyWays, match="has 3 elements and cannot be sharded 4 ways"):
        compile_pipeline(Tower(), (torch.randn(3, 64),), loss=sum_of_squares)
