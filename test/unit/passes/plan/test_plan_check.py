"""Plans that do not fit the step or the mesh, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.plan import (
    AxisUsedTwice,
    BadPlanFile,
    TooManyDims,
    TooManyWays,
    UnknownAxis,
    UnknownPreset,
)
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.passes.plan.plan import Argument, Entry, Key, Plan
from shardc.passes.plan.plan_check import check_plan

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 3)))
ARGUMENTS = (Argument("param", "w", (8, 6)), Argument("input", "x", (4,)))
W: Key = ("param", "w")

CASES: list[tuple[Key, Entry, type[ShardcError], str]] = [
    (W, Entry((("data",), ("data",))), AxisUsedTwice, r"'w' uses axis 'data' twice: \['data', 'data'\]"),
    (
        W,
        Entry((("data", "data"), ())),
        AxisUsedTwice,
        r"'w' uses axis 'data' twice: \[\['data', 'data'\], None\]",
    ),
    (W, Entry((("tensr",), ())), UnknownAxis, "'w' needs mesh axis 'tensr'; the mesh has data, tensor"),
    (W, Entry(((), (), ())), TooManyDims, r"'w' has 3 dims, but its shape is \[8, 6\]"),
    (
        ("input", "x"),
        Entry((("data", "tensor"),)),
        TooManyWays,
        "dim 0 of 'x' has 4 elements and cannot be sharded 6 ways",
    ),
    (W, Entry(refine=((1, "fsdp", -1),)), UnknownAxis, "'w' needs mesh axis 'fsdp'"),
    (W, Entry(refine=((1, "data", 2),)), TooManyDims, r"'w' has 3 dims, but its shape is \[8, 6\]"),
    (("grad", "w"), Entry(refine=((1, "fsdp", -1),)), UnknownAxis, "'w' needs mesh axis 'fsdp'"),
]


@pytest.mark.parametrize(("key", "entry", "kind", "message"), CASES)
def test_what_does_not_fit_is_named(key: Key, entry: Entry, kind: type[ShardcError], message: str) -> None:
    with pytest.raises(kind, match=message):
        check_plan(Plan("test", {key: entry}), ARGUMENTS, MESH)


@pytest.mark.parametrize(("key", "entry", "kind", "message"), CASES)
def test_of_a_saved_plan_the_file_is_named(
    key: Key, entry: Entry, kind: type[ShardcError], message: str
) -> None:
    with pytest.raises(BadPlanFile, match=rf"saved\.json cannot be used: .*{message}"):
        check_plan(Plan("test", {key: entry}), ARGUMENTS, MESH, Path("saved.json"))


def test_an_argument_that_the_step_lacks() -> None:
    with pytest.raises(BadPlanFile, match="an entry for buffer 'mean', which the step does not have"):
        check_plan(Plan("test", {("buffer", "mean"): Entry()}), ARGUMENTS, MESH, Path("saved.json"))


def test_what_fits() -> None:
    entries = {
        W: Entry((("data",), ("tensor",)), refine=((1, "data", -1),)),
        ("input", "x"): Entry((("data",),)),
    }
    check_plan(Plan("test", {**entries, ("grad", "w"): Entry(refine=((1, "data", -1),))}), ARGUMENTS, MESH)


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("tensr", "; did you mean 'tensor'?"), ("Zero3", "; did you mean 'zero3'?"), ("", "")],
)
def test_an_unknown_preset_suggests_the_nearest(word: str, nearest: str) -> None:
    error = UnknownPreset(word=word, plan=word, known="data, zero3, tensor", where="--plan")
    assert f"{word!r} in plan {word!r} is not a preset{nearest}\n" in error.render()
    # The frontend makes errors anew with a place: it passes on what it finds in `fields`.
    assert UnknownPreset(where=error.where, **error.fields).render() == error.render()  # type: ignore[arg-type]
