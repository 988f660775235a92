"""Options as fields: values that types and metadata allow, and errors for others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.options import OldSpelling
from shardc.options.field import options_of
from shardc.options.given import GROUPS
from shardc.options.kernels import Kernels
from shardc.options.numerics import Numerics
from shardc.options.parallelism import Parallelism
from shardc.options.pipeline import Pipeline

MESH = {"data": 2}


@pytest.mark.parametrize(
    ("group", "values", "given"),
    [
        (Parallelism, {"mesh": "data=2"}, "mesh is 'data=2', not a mapping"),
        (Parallelism, {"mesh": [2, 2]}, "mesh is a list of 2, 2, not a mapping"),
        (Parallelism, {"mesh": MESH, "plan": 3}, "plan is 3, not a preset's name"),
        (
            Parallelism,
            {"mesh": MESH, "plan": {0: ["data"]}},
            "plan is a dict with the keys 0, not a preset's",
        ),
        (
            Parallelism,
            {"mesh": MESH, "micro_batches": 2.0},
            "micro_batches is 2.0, not a whole number from 1",
        ),
        (Parallelism, {"mesh": MESH, "micro_batches": True}, "micro_batches is True, not a whole number"),
        (Parallelism, {"mesh": MESH, "micro_batches": 0}, "micro_batches is 0, not a whole number from 1"),
        (Pipeline, {"stages": 0}, "stages is 0, not a whole number from 1, or names of modules"),
        (
            Pipeline,
            {"stages": [1, 2]},
            "stages is a list of 1, 2, not a whole number from 1, or names of modules",
        ),
        (Pipeline, {"schedule": 1}, "schedule is 1, not the name of a schedule, a CSV file, or a schedule"),
        (Pipeline, {"gather": "batch"}, "not 'micro-batch' or 'step'; did you mean 'micro-batch'?"),
        (
            Parallelism,
            {"mesh": {"data": 2}, "recompute": ["full", 2]},
            "recompute is a list of 'full', 2, not none",
        ),
        (Pipeline, {"memory_limit_bytes": 0}, "memory_limit_bytes is 0, not a number of bytes above 0"),
        (Kernels, {"matmuls": "cublas"}, "matmuls is 'cublas', not 'auto' or 'extern' or 'generated'"),
        (Kernels, {"forbid_fusion": "tanh+exp"}, "forbid_fusion is 'tanh+exp', not a list of edges"),
        (Kernels, {"force_fusion": [3]}, "force_fusion is a list of 3, not a list of edges"),
        (Kernels, {"fuse": 1}, "fuse is 1, not True or False"),
        (Numerics, {"clip_grad_norm": "1"}, "clip_grad_norm is '1', not a number above 0"),
        (Numerics, {"clip_grad_norm": -1.0}, "clip_grad_norm is -1.0, not a number above 0"),
        (Numerics, {"clip_grad_norm": float("nan")}, "clip_grad_norm is nan, not a number above 0"),
        (Numerics, {"autocast": "bf16"}, "autocast is 'bf16', not torch.bfloat16"),
        (Numerics, {"autocast": torch.int8}, "autocast is torch.int8, not torch.bfloat16"),
        (Numerics, {"seed": "x"}, "seed is 'x', not a whole number"),
        (Numerics, {"seed": 2**63}, "seed is 9223372036854775808, not a whole number from -2**62 to 2**62"),
        (Parallelism, {"mesh": MESH, "micro_batches": 2**64}, "not a whole number from 1 to 2147483647"),
    ],
)
def test_a_wrong_value_is_named_with_what_to_give(group: Any, values: Mapping[str, Any], given: str) -> None:
    with pytest.raises(BadArgument) as caught:
        group(**values)
    name, message = [*values][-1], caught.value.render()
    about = options_of(group)[name].about
    assert given in message
    assert f"at: {name}=" in message
    assert f"try: {about.hint.example or about.help}" in message


def test_values_are_kept_as_they_are_compared() -> None:
    assert Pipeline(stages=["a", "b"]) == Pipeline(stages=("a", "b"))  # type: ignore[arg-type]
    assert Numerics(autocast=torch.bfloat16) == Numerics(autocast="bfloat16")  # type: ignore[arg-type]
    assert Numerics(clip_grad_norm=1).clip_grad_norm == 1
    assert Parallelism(MESH, Path("plan.json")).plan_path == Path("plan.json")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Numerics().seed = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", ["matmuls", "externs"])
def test_an_old_value_is_refused_with_the_new_one(name: str) -> None:
    with pytest.raises(OldSpelling, match=f"{name}='measured' is now spelled {name}='auto'"):
        Kernels(**{name: "measured"})


def test_every_option_says_what_it_is_and_has_a_name_of_its_own() -> None:
    options = [option for group in GROUPS.values() for option in options_of(group).values()]
    assert all(option.about.help.endswith(".") for option in options)
    names = [name for option in options for name in (option.name, *option.old_names)]
    assert len({*names}) == len(names)


@pytest.mark.parametrize("group", GROUPS.values())
def test_defaults_are_allowed(group: Any) -> None:
    for option in options_of(group).values():
        if not option.is_required:
            assert option.check(option.default, "compile_step") == option.default
