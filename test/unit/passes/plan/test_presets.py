"""Presets: which arguments each annotates, how products join, which words and axes are refused."""

from __future__ import annotations

import pytest

from shardc.diagnostics.base import ShardcError, collect_remarks
from shardc.diagnostics.passes.plan import (
    AxisOfTwoPresets,
    TooManyWays,
    UnknownAxis,
    UnknownPreset,
)
from shardc.diagnostics.passes.search import AutoInProduct
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.passes.interleave.fused import Fused
from shardc.passes.plan.column_row import Cut
from shardc.passes.plan.plan import ATTENTION, Argument, Plan
from shardc.passes.plan.presets import Setting, read_preset

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 2)))
ARGUMENTS = [
    Argument("param", "up", (32, 16)),
    Argument("param", "down", (16, 32)),
    Argument("param", "odd", (15, 16)),
    Argument("opt_state", "up/step", ()),
    Argument("opt_state", "up/exp_avg", (32, 16)),
    Argument("input", "ids", (8, 64)),
    Argument("input", "labels", (8, 64)),
    Argument("input", "table", (5, 3)),
    Argument("input", "scale", ()),
]
COLUMNS = {"up": Cut(0), "odd": Cut(0)}


def _plan(text: str, mesh: Mesh = MESH) -> Plan:
    return read_preset(text, Setting(ARGUMENTS, mesh, COLUMNS))


def test_data_cuts_batches() -> None:
    entries = _plan("data").entries
    assert entries["input", "ids"].dims == entries["input", "labels"].dims == (("data",), ())
    assert entries["input", "table"].dims == ((), ())
    assert entries["input", "scale"].dims == ()
    assert all(e.closed for e in entries.values())
    assert not any(role == "param" for role, _ in entries)


@pytest.mark.parametrize(
    ("stage", "gradients", "parameters"), [(1, False, False), (2, True, False), (3, True, True)]
)
def test_zero_refines_state(stage: int, gradients: bool, parameters: bool) -> None:
    entries = _plan(f"zero{stage}").entries
    cut = ((1, "data", -1),)
    assert entries["opt_state", "up/exp_avg"].refine == cut
    assert entries["opt_state", "up/exp_avg"].dims is None
    assert ("opt_state", "up/step") not in entries, "a scalar can't be cut"
    assert (("grad", "up") in entries) == gradients
    assert (("param", "up") in entries) == parameters
    if parameters:
        assert entries["param", "up"].refine == cut


def test_tensor_annotates_columns_and_leaves_them_open() -> None:
    entries = _plan("tensor").entries
    assert entries["param", "up"].dims == (("tensor",), ())
    assert not entries["param", "up"].closed
    assert ("param", "down") not in entries, "the row cut follows by propagation"


def test_columns_that_do_not_divide_are_cut_too() -> None:
    assert _plan("tensor").entries["param", "odd"].dims == (("tensor",), ())


def test_columns_fewer_than_devices_are_remarked() -> None:
    with collect_remarks() as remarks:
        entries = _plan("tensor", Mesh((MeshAxis("tensor", 16),))).entries
    assert ("param", "odd") not in entries
    assert [r.render() for r in remarks] == [
        "[NotCut] odd [15, 16] stays whole: dim 0 has too few elements for 16 devices along tensor"
    ]


def test_sequence_is_tensor_and_a_later_cut_of_dim_1() -> None:
    entries = _plan("sequence").entries
    assert entries["param", "up"].dims == (("tensor",), ())
    assert entries["input", "ids"].refine == ((1, "tensor", 1),)
    assert entries["input", "ids"].dims == ((), ()), "round 0 keeps inputs whole"


def test_a_product_joins_its_factors() -> None:
    entries = _plan("zero3*sequence").entries
    assert entries["input", "ids"].dims == (("data",), ())
    assert entries["input", "ids"].refine == ((1, "tensor", 1),)
    assert entries["param", "up"].dims == (("tensor",), ())
    assert entries["param", "up"].refine == ((1, "data", -1),)
    assert entries["param", "up"].why == "zero3, tensor"
    assert entries["input", "ids"].why == "zero3, sequence"


def test_an_axis_by_name() -> None:
    mesh = Mesh((MeshAxis("rows", 2), MeshAxis("columns", 2)))
    entries = _plan(" zero1 : rows * tensor:columns ", mesh).entries
    assert entries["input", "ids"].dims == (("rows",), ())
    assert entries["param", "up"].dims == (("columns",), ())


def test_hybrid_cuts_state_within_a_replica() -> None:
    """Zhao et al., PyTorch FSDP, VLDB 2023, hybrid sharding."""
    entries = _plan("hybrid", Mesh((MeshAxis("replica", 2), MeshAxis("data", 4)))).entries
    assert entries["input", "ids"].dims == (("replica", "data"), ())
    assert entries["param", "up"].refine == ((1, "data", -1),)
    with pytest.raises(UnknownAxis, match="replica"):
        _plan("hybrid")


def test_context_cuts_sequences_and_attention_behind_others() -> None:
    mesh = Mesh((MeshAxis("data", 2), MeshAxis("context", 4)))
    tokens = Argument("input", "ids", (8, 64), counts=True)
    features, heard = (
        Argument("input", name, shape) for name, shape in (("features", (8, 64, 16)), ("heard", (8, 16, 100)))
    )
    image, classes, numbers = (
        Argument("input", "image", (8, 3, 32, 32)),
        Argument("input", "classes", (8, 3), counts=True),
        Argument("input", "numbers", (8, 100)),
    )
    plan = read_preset("data*context", Setting([tokens, features, heard, image, classes, numbers], mesh, {}))
    assert plan.entries[tokens.key].dims == (("data",), ("context",))
    assert plan.entries[features.key].dims == (("data",), ("context",), ())
    assert plan.entries[heard.key].dims == (("data",), (), ("context",))
    assert plan.entries[image.key].dims == (("data",), (), ("context",), ())
    assert plan.entries[numbers.key].dims == (("data",), ())
    assert plan.entries[classes.key].dims == (("data",), ())
    assert plan.entries[ATTENTION].refine == ((0, "context", 2),)


@pytest.mark.parametrize("name", ["dp", "fsdp", "batch", "replica"])
def test_usual_names_of_the_data_axis(name: str) -> None:
    assert _plan("data", Mesh((MeshAxis(name, 2),))).entries["input", "ids"].dims == ((name,), ())


def test_time_axes_come_last_and_only_on_batches() -> None:
    mesh = Mesh((*MESH.axes, MeshAxis("micro", 2, "time")))
    entries = _plan("data*tensor", mesh).entries
    assert entries["input", "ids"].dims == (("data", "micro"), ())
    assert entries["input", "table"].dims == ((), ())
    entries = _plan("tensor", mesh).entries
    assert entries["input", "ids"].dims == (("micro",), ())


@pytest.mark.parametrize(
    ("text", "mesh", "error", "said"),
    [
        ("tensr", MESH, UnknownPreset, "'tensr' in plan 'tensr' is not a preset"),
        ("data*", MESH, UnknownPreset, "'' in plan 'data*' is not a preset"),
        ("data+tensor", MESH, UnknownPreset, "'data+tensor'"),
        ("data*auto", MESH, AutoInProduct, "a search decides on all axes"),
        (
            "data:rows",
            MESH,
            UnknownAxis,
            "preset 'data' needs mesh axis 'rows'; the mesh has data (2), tensor (2)",
        ),
        ("tensor", Mesh((MeshAxis("x", 2),)), UnknownAxis, "name the axis: tensor:x"),
        (
            "data:micro",
            Mesh((*MESH.axes, MeshAxis("micro", 2, "time"))),
            UnknownAxis,
            "needs mesh axis 'micro'",
        ),
        (
            "data",
            Mesh((MeshAxis("data", 9),)),
            TooManyWays,
            "dim 0 of 'ids' has 8 elements and cannot be sharded 9 ways",
        ),
    ],
)
def test_refused(text: str, mesh: Mesh, error: type[ShardcError], said: str) -> None:
    with pytest.raises(error) as caught:
        _plan(text, mesh)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "axis"), [("data*data", "data"), ("zero1*zero3", "data"), ("data:tensor*tensor", "tensor")]
)
def test_one_axis_for_two_presets(text: str, axis: str) -> None:
    """An axis cuts one dim of a value only: what would cut a weight one way and the batch another is refused
    too.
    """
    with pytest.raises(AxisOfTwoPresets, match=f"both use mesh axis '{axis}'"):
        _plan(text)


@pytest.mark.parametrize(("heads", "cut"), [((4, 2, 2), True), ((4, 1, 1), False)])
def test_weights_of_several_parts_are_cut_where_all_heads_divide(heads: tuple[int, ...], cut: bool) -> None:
    sizes = tuple(4 * n for n in heads)
    columns = {"up": Cut(0, Fused(sizes, heads, ()))}
    plan = read_preset("tensor", Setting(ARGUMENTS, MESH, columns))
    assert (("param", "up") in plan.entries) == cut
