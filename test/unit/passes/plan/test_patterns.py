"""Plans as mappings from name patterns to shardings: matches, and all kinds of errors."""

from __future__ import annotations

from typing import Any

import pytest

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.plan import (
    AxisUsedTwice,
    BadShardingEntry,
    PatternMatchesNothing,
    TooManyDims,
    TooManyWays,
    UnknownAxis,
)
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.passes.plan.patterns import read_dims, read_patterns
from shardc.passes.plan.plan import Argument

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 4)))
LOOPING = Mesh((*MESH.axes, MeshAxis("micro", 2, "time")))
ARGUMENTS = [
    Argument("param", "layers.0.q_proj.weight", (32, 16)),
    Argument("param", "layers.1.q_proj.weight", (32, 16)),
    Argument("param", "norm.weight", (6,)),
    Argument("opt_state", "layers.0.q_proj.weight/exp_avg", (32, 16)),
    Argument("buffer", "rope", (16,)),
    Argument("input", "input_ids", (8, 16)),
    Argument("hyper", "lr", ()),
]


def test_every_match_is_closed_and_says_which_pattern() -> None:
    plan = read_patterns({"*.q_proj.weight": ["tensor", None]}, ARGUMENTS, MESH)
    for layer in (0, 1):
        entry = plan.entries["param", f"layers.{layer}.q_proj.weight"]
        assert entry.dims == (("tensor",), ())
        assert entry.closed
        assert entry.why == "pattern *.q_proj.weight"
    assert ("param", "norm.weight") not in plan.entries


def test_a_word_for_whole() -> None:
    plan = read_patterns({"norm.weight": "whole", "*.weight": ["tensor"]}, ARGUMENTS, MESH)
    assert plan.entries["param", "norm.weight"].dims == ((),)
    with pytest.raises(BadShardingEntry, match="hole"):
        read_patterns({"norm.weight": "hole"}, ARGUMENTS, MESH)


def test_the_first_pattern_that_matches_counts() -> None:
    patterns = {"layers.0.*": ["tensor"], "layers.*": ["data", "tensor"]}
    plan = read_patterns(patterns, ARGUMENTS, MESH)
    assert plan.entries["param", "layers.0.q_proj.weight"].dims == (("tensor",), ())
    assert plan.entries["param", "layers.1.q_proj.weight"].dims == (("data",), ("tensor",))


def test_optimizer_state_is_named_with_a_slash() -> None:
    plan = read_patterns({"layers.*": ["tensor"]}, ARGUMENTS, MESH)
    assert ("opt_state", "layers.0.q_proj.weight/exp_avg") not in plan.entries
    plan = read_patterns({"layers.*/exp_avg": ["data"]}, ARGUMENTS, MESH)
    assert plan.entries["opt_state", "layers.0.q_proj.weight/exp_avg"].dims == (("data",), ())


def test_inputs_that_nobody_names_are_whole_and_closed() -> None:
    entry = read_patterns({"rope": [None]}, ARGUMENTS, MESH).entries["input", "input_ids"]
    assert entry.dims == ((), ())
    assert entry.closed


def test_time_cuts_the_batch_behind_the_devices() -> None:
    plan = read_patterns({"input_ids": ["data"]}, ARGUMENTS, LOOPING)
    assert plan.entries["input", "input_ids"].dims == (("data", "micro"), ())


@pytest.mark.parametrize(
    ("entries", "dims"),
    [
        ([None, None], ((), ())),
        (["tensor"], (("tensor",), ())),
        ([], ((), ())),
        ([["data", "tensor"], None], (("data", "tensor"), ())),
        ((("tensor",), "data"), (("tensor",), ("data",))),
        ([[], "data"], ((), ("data",))),
    ],
)
def test_ways_to_write_a_sharding(entries: Any, dims: tuple[tuple[str, ...], ...]) -> None:
    assert read_dims(ARGUMENTS[0], entries, MESH) == dims


@pytest.mark.parametrize(
    ("patterns", "error", "said"),
    [
        (
            {"*.k_proj.weight": ["tensor"]},
            PatternMatchesNothing,
            "the nearest names are layers.1.q_proj.weight, layers.0",
        ),
        ({"norm.weigh": []}, PatternMatchesNothing, "the nearest names are norm.weight"),
        ({"lr": []}, PatternMatchesNothing, "'lr' in the plan matches no argument"),
        (
            {"norm.weight": ["tensr"]},
            UnknownAxis,
            "'norm.weight' needs mesh axis 'tensr'; the mesh has data, tensor",
        ),
        ({"norm.weight": ["tensr"]}, UnknownAxis, "name the axis: tensor"),
        ({"rope": ["data", None]}, TooManyDims, "'rope' has 2 dims, but its shape is [16]"),
        ({"layers.*": ["data", "data"]}, AxisUsedTwice, "uses axis 'data' twice: ['data', 'data']"),
        ({"layers.*": [["data", "data"]]}, AxisUsedTwice, "uses axis 'data' twice"),
        (
            {"norm.weight": [["data", "tensor"]]},
            TooManyWays,
            "'norm.weight' has 6 elements and cannot be sharded 8 ways (data x tensor)",
        ),
        ({"input_ids": [["data", "tensor"], ["data"]]}, AxisUsedTwice, "'input_ids'"),
        ({"rope": "data"}, BadShardingEntry, "the sharding of 'rope' has the invalid entry 'data'"),
        ({"rope": [0]}, BadShardingEntry, "has the invalid entry 0"),
        ({"rope": [["data", 1]]}, BadShardingEntry, "has the invalid entry ['data', 1]"),
    ],
)
def test_mistakes(patterns: dict[str, Any], error: type[ShardcError], said: str) -> None:
    with pytest.raises(error) as caught:
        read_patterns(patterns, ARGUMENTS, MESH)
    assert said in str(caught.value)


def test_a_batch_smaller_than_devices_times_iterations() -> None:
    mesh = Mesh((MeshAxis("data", 2), MeshAxis("micro", 5, "time")))
    with pytest.raises(
        TooManyWays,
        match=r"dim 0 of 'input_ids' has 8 elements and cannot be sharded 10 ways \(data x micro\)",
    ):
        read_patterns({"input_ids": ["data"]}, ARGUMENTS, mesh)
