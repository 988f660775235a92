"""The ``dist`` ops under the interpreter: collectives, time loops, manual regions."""

from __future__ import annotations

import pytest
import torch

from shardc.backends.eager.interpreter import run
from shardc.diagnostics.oracle import ExecutionFailed

MESH = (
    '"dist.mesh"() {sym_name = "mesh", axes = [["a", 2, "space"], ["b", 2, "space"], ["t", 4, "time"]]} '
    ": () -> ()\n"
)
T44 = "!torch.vtensor<[4,4],f32>"
BLOCKS = [torch.arange(16.0).view(4, 4) + 100 * rank for rank in range(4)]


def step(body: str, result: str, argument: str = T44) -> str:
    return MESH + f"func.func @step(%x: {argument}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"


def one(op: str, attributes: str, result: str = T44) -> str:
    return step(f'%r = "dist.{op}"(%x) {{{attributes}}} : ({T44}) -> {result}', result)


def rows(size: int) -> str:
    return f"!torch.vtensor<[{size},4],f32>"


# Rank 2 * i + j stands at (i, j) on (a, b).
A = {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}
HALF = {rank: slice(2 * (rank // 2), 2 * (rank // 2) + 2) for rank in range(4)}

CASES = {
    "all_reduce sum": (
        one("all_reduce", 'axes = ["a"], reduction = "sum"'),
        lambda r: BLOCKS[A[r][0]] + BLOCKS[A[r][1]],
    ),
    "all_reduce max": (one("all_reduce", 'axes = ["a", "b"], reduction = "max"'), lambda r: BLOCKS[3]),
    "all_reduce min": (one("all_reduce", 'axes = ["b"], reduction = "min"'), lambda r: BLOCKS[r - r % 2]),
    "all_gather": (
        one("all_gather", 'axes = ["a"], dim = 0', rows(8)),
        lambda r: torch.cat([BLOCKS[i] for i in A[r]]),
    ),
    "all_gather in index order": (
        one("all_gather", 'axes = ["b", "a"], dim = 0', rows(16)),
        lambda r: torch.cat([BLOCKS[i] for i in (0, 2, 1, 3)]),
    ),
    "reduce_scatter": (
        one("reduce_scatter", 'axes = ["a"], dim = 0, reduction = "sum"', rows(2)),
        lambda r: (BLOCKS[A[r][0]] + BLOCKS[A[r][1]])[HALF[r]],
    ),
    "all_to_all": (
        one("all_to_all", 'axes = ["a"], split_dim = 0, concat_dim = 1', "!torch.vtensor<[2,8],f32>"),
        lambda r: torch.cat([BLOCKS[i][HALF[r]] for i in A[r]], 1),
    ),
    "permute": (
        one(
            "permute",
            'source = #dist.sharding<@mesh, [["a", "b"], []], []>, '
            'target = #dist.sharding<@mesh, [["b", "a"], []], []>',
        ),
        lambda r: BLOCKS[(0, 2, 1, 3)[r]],
    ),
    "exchange": (
        one("exchange", 'axes = ["b", "a"], sources = [3, 0, -1, 1]'),
        lambda r: (BLOCKS[3], 0 * BLOCKS[0], BLOCKS[0], BLOCKS[2])[r],
    ),
    "broadcast": (one("broadcast", 'axes = ["a"], root = 1'), lambda r: BLOCKS[2 + r % 2]),
    "slice": (one("slice", 'axes = ["a", "b"], dim = 0', rows(1)), lambda r: BLOCKS[r][r : r + 1]),
    "partial": (one("partial", 'axes = ["b"]'), lambda r: BLOCKS[r] * (r % 2 == 0)),
    "reshard": (one("reshard", 'sharding = #dist.sharding<@mesh, [["a"], []], []>'), lambda r: BLOCKS[r]),
    "constraint": (
        one("constraint", 'sharding = #dist.sharding<@mesh, [["a"], []], []>'),
        lambda r: BLOCKS[r],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_op_on_four_ranks(parse, case):
    text, expected = CASES[case]
    [out] = run(parse(text), [BLOCKS])
    for rank in range(4):
        assert torch.equal(out[rank], expected(rank)), f"rank {rank}"


def test_sub_axes(parse):
    mesh = '"dist.mesh"() {sym_name = "mesh", axes = [["a", 4, "space"]]} : () -> ()\n'
    op = (
        f'%r = "dist.all_reduce"(%x) {{axes = [#dist.axis<"a", 2, 2>], reduction = "sum"}} : ({T44}) -> {T44}'
    )
    [out] = run(parse(step(op, T44).replace(MESH, mesh)), [BLOCKS])
    assert [torch.equal(out[r], BLOCKS[r - r % 2] + BLOCKS[r - r % 2 + 1]) for r in range(4)] == [True] * 4


SLICE = (
    '%row = "dist.slice"(%all) {{dim = 0, axes = [{axes}]}} : (!torch.vtensor<[4,4],f32>) -> '
    "!torch.vtensor<[{n},4],f32>"
)
LOOP = """
  %one = torch.constant.int 1
  %none = torch.constant.none
  %start = torch.aten.sum %x, %none : !torch.vtensor<[4,4],f32>, !torch.none -> !torch.vtensor<[],f32>
  %inits = torch.prim.TupleConstruct %start : !torch.vtensor<[],f32> -> !torch.tuple<vtensor<[],f32>>
  %same = torch.prim.TupleConstruct %x : !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[4,4],f32>>
  %sums, %rows = "dist.loop"(%inits, %same) ({
  ^bb0(%sum: !torch.vtensor<[],f32>, %all: !torch.vtensor<[4,4],f32>):
    %bnone = torch.constant.none
    %bone = torch.constant.int 1
    %row = "dist.slice"(%all) {dim = 0, axes = ["t"]} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[1,4],f32>
    %at = "dist.offset"() {axes = ["t"], extent = 10, scale = 1, base = 0} : () -> !torch.int
    %term = torch.aten.sum %row, %bnone : !torch.vtensor<[1,4],f32>, !torch.none -> !torch.vtensor<[],f32>
    %next = torch.aten.add.Tensor %sum, %term, %bone : !torch.vtensor<[],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[],f32>
    %moved = torch.aten.add.Scalar %row, %at, %bone : !torch.vtensor<[1,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[1,4],f32>
    %c = torch.prim.TupleConstruct %next : !torch.vtensor<[],f32> -> !torch.tuple<vtensor<[],f32>>
    %s = torch.prim.TupleConstruct %moved : !torch.vtensor<[1,4],f32> -> !torch.tuple<vtensor<[1,4],f32>>
    "dist.yield"(%c, %s) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[1,4],f32>>) -> ()
  }) {axis = "t", stack_dims = [0], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}
    : (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[4,4],f32>>) -> (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[4,4],f32>>)
  %total = torch.prim.TupleUnpack %sums : !torch.tuple<vtensor<[],f32>> -> !torch.vtensor<[],f32>
  %stack = torch.prim.TupleUnpack %rows : !torch.tuple<vtensor<[4,4],f32>> -> !torch.vtensor<[4,4],f32>
  %r = torch.aten.add.Tensor %stack, %total, %one : !torch.vtensor<[4,4],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
"""  # noqa: E501


def test_a_time_loop_carries_and_stacks(parse):
    [out] = run(parse(step(LOOP, T44)), [BLOCKS])
    for rank, x in enumerate(BLOCKS):
        assert torch.equal(out[rank], x + 10 * torch.arange(4.0)[:, None] + 2 * x.sum()), f"rank {rank}"


def test_each_iteration_is_observed(parse):
    seen = []
    body = LOOP.replace(
        "%term = torch.aten.sum %row, %bnone", '%term = torch.aten.sum %row, %bnone {dist.name = "term"}'
    )
    run(
        parse(step(body, T44)),
        [BLOCKS],
        observe=lambda name, values, op: seen.append([v.item() for v in values]),
    )
    assert seen == [[x[i].sum().item() for x in BLOCKS] for i in range(4)]


def test_nested_loops_over_parts_of_one_time_axis(parse):
    row = "!torch.vtensor<[1,4],f32>"
    inner = f"""
      ^bb0(%y: {T44}):
        %row = "dist.slice"(%y) {{dim = 0, axes = ["t"]}} : ({T44}) -> {row}
        %s = torch.prim.TupleConstruct %row : {row} -> !torch.tuple<vtensor<[1,4],f32>>
        "dist.yield"(%s) {{operandSegmentSizes = array<i32: 0, 1>}} : (!torch.tuple<vtensor<[1,4],f32>>) -> ()"""  # noqa: E501
    sizes = "operandSegmentSizes = array<i32: 0, 1>, resultSegmentSizes = array<i32: 0, 1>, stack_dims = [0]"
    body = f"""
      %same = torch.prim.TupleConstruct %x : {T44} -> !torch.tuple<vtensor<[4,4],f32>>
      %out = "dist.loop"(%same) ({{
      ^bb0(%z: {T44}):
        %in = torch.prim.TupleConstruct %z : {T44} -> !torch.tuple<vtensor<[4,4],f32>>
        %half = "dist.loop"(%in) ({{{inner}
        }}) {{axis = #dist.axis<"t", 2, 2>, {sizes}}} : (!torch.tuple<vtensor<[4,4],f32>>) -> !torch.tuple<vtensor<[2,4],f32>>
        %h = torch.prim.TupleUnpack %half : !torch.tuple<vtensor<[2,4],f32>> -> {rows(2)}
        %n = torch.aten.neg %h : {rows(2)} -> {rows(2)}
        %s = torch.prim.TupleConstruct %n : {rows(2)} -> !torch.tuple<vtensor<[2,4],f32>>
        "dist.yield"(%s) {{operandSegmentSizes = array<i32: 0, 1>}} : (!torch.tuple<vtensor<[2,4],f32>>) -> ()
      }}) {{axis = #dist.axis<"t", 1, 2>, {sizes}}} : (!torch.tuple<vtensor<[4,4],f32>>) -> !torch.tuple<vtensor<[4,4],f32>>
      %r = torch.prim.TupleUnpack %out : !torch.tuple<vtensor<[4,4],f32>> -> {T44}"""  # noqa: E501
    [out] = run(parse(step(body, T44)), [BLOCKS])
    assert all(torch.equal(out[rank], -BLOCKS[rank]) for rank in range(4))


MANUAL = """
  %ins = torch.prim.TupleConstruct %x : !torch.vtensor<[8,4],f32> -> !torch.tuple<vtensor<[8,4],f32>>
  %outs = "dist.manual"(%ins) ({
  ^bb0(%mine: !torch.vtensor<[4,4],f32>):
    %next = "dist.permute"(%mine) {source = #dist.sharding<@mesh, [["a"], []], []>, target = #dist.sharding<@mesh, [["a"], []], []>}
      : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,4],f32>
    %sum = "dist.all_reduce"(%next) {axes = ["a"], reduction = "sum"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,4],f32>
    %v = torch.prim.TupleConstruct %sum : !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[4,4],f32>>
    "dist.yield"(%v) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[4,4],f32>>) -> ()
  }) {axes = ["a"], in_shardings = [#dist.sharding<@mesh, [["a", "b"], []], []>], out_shardings = [#dist.sharding<@mesh, [["a"], []], []>]}
    : (!torch.tuple<vtensor<[8,4],f32>>) -> !torch.tuple<vtensor<[8,4],f32>>
  %r = torch.prim.TupleUnpack %outs : !torch.tuple<vtensor<[8,4],f32>> -> !torch.vtensor<[8,4],f32>
"""  # noqa: E501


def test_a_manual_region_on_global_values(parse):
    x = torch.arange(32.0).view(8, 4)
    [[out]] = run(parse(step(MANUAL, rows(8), rows(8))), [[x]])
    assert torch.equal(out, torch.cat([x[:4] + x[4:]] * 2))


def test_a_time_slice_outside_a_loop_is_refused(parse):
    text = step(f'%r = "dist.slice"(%x) {{axes = ["t"], dim = 0}} : ({T44}) -> {rows(1)}', rows(1))
    with pytest.raises(
        ExecutionFailed, match=r"dist.slice could not be executed: time axis 't' is read outside"
    ):
        run(parse(text), [BLOCKS])
