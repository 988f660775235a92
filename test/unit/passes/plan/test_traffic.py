"""Collectives of a rank's program, and the bytes that each device sends in them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch_mlir import ir

from shardc.cost.collective import sent_bytes
from shardc.dialects.context import new_context
from shardc.report.traffic import Transfer, named_transfers, totals, transfers

PROGRAM = """
"dist.mesh"() {sym_name = "mesh", axes = [["data", 4, "space"], ["tensor", 2, "space"], ["micro", 3, "time"]]} : () -> ()
func.func @step(%x: !torch.vtensor<[8,4],f32>, %half: !torch.vtensor<[8,4],bf16>) {
  %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum", dist.phase = "forward"} : (!torch.vtensor<[8,4],f32>) -> !torch.vtensor<[8,4],f32> loc("model.py":7:1)
  %1 = "dist.all_gather"(%half) {axes = ["data", "tensor"], dim = 0} : (!torch.vtensor<[8,4],bf16>) -> !torch.vtensor<[64,4],bf16>
  %2 = "dist.reduce_scatter"(%x) {axes = [#dist.axis<"data", 2, 2>], dim = 0, reduction = "sum"} : (!torch.vtensor<[8,4],f32>) -> !torch.vtensor<[4,4],f32>
  %3 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["data", "tensor"], []], []>, target = #dist.sharding<@mesh, [["tensor", "data"], []], []>} : (!torch.vtensor<[8,4],f32>) -> !torch.vtensor<[8,4],f32>
  %captures = torch.prim.TupleConstruct %x : !torch.vtensor<[8,4],f32> -> !torch.tuple<vtensor<[8,4],f32>>
  %rows = "dist.loop"(%captures) ({
  ^bb0(%y: !torch.vtensor<[8,4],f32>):
    %4 = "dist.all_to_all"(%y) {axes = ["tensor"], split_dim = 0, concat_dim = 1, dist.phase = "backward"} : (!torch.vtensor<[8,4],f32>) -> !torch.vtensor<[4,8],f32>
    %stacked = torch.prim.TupleConstruct %4 : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    "dist.yield"(%stacked) {operandSegmentSizes = array<i32: 0, 1>} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 0, 1>, resultSegmentSizes = array<i32: 0, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[8,4],f32>>) -> !torch.tuple<vtensor<[12,8],f32>>
  return
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def found() -> list[Transfer]:
    with new_context():
        return transfers(ir.Module.parse(PROGRAM))


@pytest.mark.parametrize(
    ("kind", "ways", "size_bytes"),
    [
        ("all_reduce", 2, 100.0),
        ("all_reduce", 4, 150.0),
        ("all_gather", 4, 300.0),
        ("reduce_scatter", 4, 75.0),
        ("all_to_all", 4, 75.0),
        ("permute", 4, 100.0),
        ("broadcast", 4, 100.0),
        ("all_reduce", 1, 0.0),
        ("all_gather", 1, 0.0),
    ],
)
def test_bytes_of_100_local_bytes(kind: str, ways: int, size_bytes: float) -> None:
    """Bandwidth-optimal algorithms (Chan et al. 2007)."""
    assert sent_bytes(kind, ways, 100) == size_bytes


@pytest.mark.parametrize("ways", [2, 3, 8])
def test_an_all_reduce_is_a_scatter_and_a_gather(ways: int) -> None:
    scatter, gather = (
        sent_bytes("reduce_scatter", ways, 96),
        sent_bytes("all_gather", ways, 96 / ways),
    )
    assert scatter + gather == pytest.approx(sent_bytes("all_reduce", ways, 96))


def test_every_collective_in_program_order(found: list[Transfer]) -> None:
    assert [(t.kind, t.axes, t.ways, t.times) for t in found] == [
        ("all_reduce", ("data",), 4, 1),
        ("all_gather", ("data", "tensor"), 8, 1),
        ("reduce_scatter", ("data",), 2, 1),
        ("permute", ("data", "tensor"), 8, 1),
        ("all_to_all", ("tensor",), 2, 3),
    ]


def test_bytes_of_each(found: list[Transfer]) -> None:
    local = 8 * 4 * 4
    assert [t.bytes_moved for t in found] == [1.5 * local, 7 * local / 2, local / 2, local, 3 * local / 2]


def test_type_phase_and_line(found: list[Transfer]) -> None:
    first, gather = found[:2]
    assert (first.phase, first.where) == ("forward", "model.py:7")
    assert (gather.phase, gather.type.shape, gather.type.dtype) == ("", (8, 4), torch.bfloat16)
    assert found[-1].phase == "backward"


def test_totals_count_every_iteration(found: list[Transfer]) -> None:
    sums = totals([*found, found[0]])
    assert sums["forward", ("data",), "all_reduce"] == (2, 2 * 1.5 * 128)
    assert sums["backward", ("tensor",), "all_to_all"] == (3, 3 * 64)


def test_a_program_without_a_mesh_sends_nothing() -> None:
    with new_context():
        assert transfers(ir.Module.parse("func.func @step() { return }")) == []


def test_a_whole_step_loops_its_scatters(mlp: Callable) -> None:
    program = mlp("zero2", {"data": 2}, micro_batches=4)
    scatters = [t for t in program.transfers if t.kind == "reduce_scatter"]
    assert {t.times for t in scatters} == {4}
    assert sum(t.bytes_moved for t in scatters) == 4 * program.weights / 2 * 4


def test_what_collectives_move_is_named(mlp: Callable) -> None:
    found = named_transfers(mlp("zero3", {"data": 2}).compiled.rank_module)
    said = {(t.phase, t.kind): t.what for t in found}
    assert re.fullmatch(r"0\.\w+ and [23] more", said["forward", "all_gather"])
    assert re.fullmatch(r"gradient of [024]\.\w+ and [23] more", said["backward", "reduce_scatter"])
    assert said["forward", "all_reduce"] == "loss"
