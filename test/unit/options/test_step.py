"""Options by group and by name, for each front end, and checks that need no model."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import shardc
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.kernels import UnknownTarget
from shardc.diagnostics.options import OldSpelling, OptionElsewhere, UnknownOption
from shardc.diagnostics.passes import pipeline as pipelines
from shardc.diagnostics.passes import search
from shardc.diagnostics.passes.fusion import BadFusionEdge, FusionRefused
from shardc.diagnostics.passes.plan import (
    AxisOfTwoPresets,
    BadMeshSpec,
    BadPlanFile,
    UnknownAxis,
    UnknownPreset,
)
from shardc.options.given import Given
from shardc.options.kernels import Kernels
from shardc.options.parallelism import Parallelism
from shardc.options.pipeline import Pipeline
from shardc.options.step import StepOptions

MESH = {"data": 2}
PIPELINE: dict[str, Any] = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4}


def test_compile_step_has_at_most_twelve_parameters() -> None:
    assert len(inspect.signature(shardc.compile_step).parameters) <= 12


@pytest.mark.parametrize(
    "given",
    [
        {**PIPELINE, "schedule": "zb-h1"},
        {"parallelism": PIPELINE, "pipeline": {"schedule": "zb-h1"}},
        {"parallelism": Parallelism(**PIPELINE), "pipeline": Pipeline("zb-h1")},
        {
            "parallelism": Parallelism(**PIPELINE | {"micro_batches": 8}),
            "micro_batches": 4,
            "schedule": "zb-h1",
        },
        {**PIPELINE, "pipeline": {"stages": None, "schedule": "zb-h1"}, "clip_grad_norm": None},
    ],
)
def test_a_group_is_its_dataclass_a_mapping_or_names_of_fields(given: dict[str, Any]) -> None:
    assert StepOptions.of(given) == StepOptions(Parallelism(**PIPELINE), Pipeline("zb-h1"))


def test_defaults() -> None:
    options = StepOptions.of({"mesh": MESH})
    assert options == StepOptions(Parallelism(MESH)) and options.pipeline is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cap_bytes", "memory_limit_bytes"),
        ("memory", "memory_limit_bytes"),
        ("clip", "clip_grad_norm"),
        ("forbid", "forbid_fusion"),
        ("force", "force_fusion"),
        ("microbatches", "micro_batches"),
        ("numerics", "rounding"),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(old: str, new: str) -> None:
    with pytest.raises(OldSpelling, match=f"{old} is now spelled {new}\n  at: {old}=\n  try: write {new}"):
        StepOptions.of({"mesh": MESH, old: "eager"})


PLAN = {"schema": "shardc-plan", "version": 2}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, BadArgument, "mesh is None, not a mapping"),
        ({"micro_batch": 4}, UnknownOption, "no option 'micro_batch'; did you mean 'micro_batches'"),
        ({"pipeline": {"fuse": True}}, UnknownOption, "compile_step's pipeline has no option 'fuse'"),
        ({"pipeline": "1f1b"}, BadArgument, "pipeline is '1f1b', not a Pipeline or a mapping of its fields"),
        ({"cuda_graphs": True}, OptionElsewhere, "'cuda_graphs' is an option of torch.compile"),
        ({"mesh": {}}, BadMeshSpec, "it has no axes"),
        ({"mesh": {"data": 0}}, BadMeshSpec, "axis 'data' has size 0"),
        ({"mesh": {"micro": 2}, "micro_batches": 2}, BadMeshSpec, "is reserved for micro-batches"),
        ({"mesh": MESH, "plan": "tensr"}, UnknownPreset, "did you mean 'tensor'"),
        ({"mesh": MESH, "plan": "tensor"}, UnknownAxis, "the mesh has data"),
        ({"mesh": MESH, "plan": "data*zero1"}, AxisOfTwoPresets, "both use mesh axis 'data'"),
        ({"mesh": MESH, "plan": "data*auto"}, search.AutoInProduct, "a search decides on all axes"),
        ({"mesh": MESH, "plan": "auto", "memory_budget": "1GB"}, search.NotSearched, "memory_budget yet"),
        (
            {"mesh": {"a": 2, "b": 2}, "plan": "auto", "shares": {"b": [3, 1]}},
            search.NotSearched,
            "an axis that is not the outermost",
        ),
        ({"mesh": MESH, "plan": "nowhere.json"}, BadPlanFile, "there is no such file"),
        ({"mesh": MESH, "plan": "FILE"}, BadPlanFile, "it has version 2; this shardc reads version 1"),
        ({"mesh": MESH, "schedule": "1f1b"}, pipelines.NotAPipeline, "plan 'data' has no pipeline"),
        ({"mesh": MESH, "pipeline": Pipeline()}, pipelines.NotAPipeline, "plan 'data' has no pipeline"),
        ({"mesh": MESH, "plan": {"*": []}, "stages": 2}, pipelines.NotAPipeline, "has no pipeline"),
        ({**PIPELINE, "micro_batches": 1}, pipelines.NoMicroBatches, "micro_batches=n"),
        ({**PIPELINE, "schedule": "1f1bb"}, pipelines.UnknownSchedule, "the nearest is '1f1b'"),
        ({**PIPELINE, "schedule": "1f1b", "stages": 3}, pipelines.BadStages, "one stage a rank"),
        ({**PIPELINE, "speeds": [3]}, pipelines.BadSpeeds, "2 ranks"),
        ({**PIPELINE, "speeds": [3, 0]}, pipelines.BadSpeeds, "above 0"),
        (
            {**PIPELINE, "schedule": "interleaved", "micro_batches": 3},
            pipelines.BadMicroBatches,
            "a multiple of 2",
        ),
        ({**PIPELINE, "schedule": "pipedream"}, pipelines.ChangesMathematics, "stale_weights=True"),
        ({**PIPELINE, "schedule": "mine.csv"}, pipelines.BadScheduleFile, "mine.csv"),
        ({**PIPELINE, "recompute": ["full"]}, pipelines.WrongRecompute, "for 1 stages, but the step has 2"),
        ({"mesh": MESH, "target": "sm_89"}, UnknownTarget, "sm_90"),
        ({"mesh": MESH, "forbid_fusion": ["gelu"]}, BadFusionEdge, "two names"),
        (
            {"mesh": MESH, "forbid_fusion": ["a+b"], "force_fusion": ["a+b"]},
            BadFusionEdge,
            "it is both forbidden and forced",
        ),
        ({"mesh": MESH, "fuse": False, "force_fusion": ["a+b"]}, FusionRefused, "fuse is False"),
    ],
)
def test_what_is_wrong_without_a_model(
    given: dict[str, Any], error: type[ShardcError], message: str, tmp_path: Path
) -> None:
    if given.get("plan") == "FILE":
        given = {**given, "plan": tmp_path / "plan.json"}
        (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    with pytest.raises(error, match=message):
        StepOptions.of(given)


def test_a_schedule_that_is_made_and_those_that_are_found_are_left_to_the_pass() -> None:
    from shardc.passes.pipeline.schedules.by_name import schedule

    made = schedule("1f1b", 2, 4)
    options = StepOptions.of({**PIPELINE, "schedule": made})
    assert options.pipeline is not None and options.pipeline.schedule is made
    StepOptions.of({**PIPELINE, "schedule": "auto", "stages": 7})


def test_errors_say_where_as_their_front_end_writes_it() -> None:
    for front_end, where in (
        ("compile_step", "matmuls="),
        ("torch.compile", 'options={"matmuls": ...}'),
        ("the command line", "--matmuls"),
    ):
        with pytest.raises(BadArgument) as caught:
            Given({"matmuls": "no"}, front_end, ("kernels",)).group("kernels", Kernels)  # type: ignore[arg-type]
        assert caught.value.where == where
