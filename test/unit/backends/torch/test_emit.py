"""The emitted program: whole texts, and each decision by a small module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from torch_mlir import ir

from shardc.backends.torch.emit import emit_program
from shardc.backends.torch.memory import prefetch, schedule

HERE = Path(__file__).parent
T = "[4,64],f32"
V = f"!torch.vtensor<{T}>"


def mm(result: str, left: str, right: str) -> str:
    """A step with two operands that makes memory of its own."""
    return f"%{result} = torch.aten.mul.Tensor %{left}, %{right} : {V}, {V} -> {V}"


def reduce(result: str, operand: str) -> str:
    return f'%{result} = "dist.all_reduce"(%{operand}) {{axes = ["data"], reduction = "sum"}} : ({V}) -> {V}'


def transpose_twice(result: str, operand: str) -> str:
    """A view."""
    return f"%{result} = torch.aten.alias %{operand} : {V} -> {V}"


@pytest.mark.parametrize("name", ["two_layer", "each_collective"])
def test_whole_program(name: str, context: ir.Context) -> None:
    """The text is what a person reads: a change of it is to be looked at, then `name.txt` written anew."""
    text = emit_program(ir.Module.parse((HERE / f"{name}.mlir").read_text()))
    assert text == (HERE / f"{name}.txt").read_text()
    ast.parse(text)


def test_wait_stands_where_the_result_is_needed(emit) -> None:
    body = "\n".join([mm("a", "x", "x"), reduce("b", "a"), mm("c", "x", "x"), mm("d", "c", "b")])
    lines = emit({"input:x": T}, {"loss:l": T}, body, ["%d"])
    assert lines == [
        "mul_0 = mul(x, x)",
        "all_reduce_0 = rank.all_reduce(mul_0, axes=DATA, reuse=True)",
        "del mul_0",
        "mul_1 = mul(x, x)",
        "all_reduce_0 = all_reduce_0.wait()",
        "mul_2 = mul(mul_1, all_reduce_0)",
        "del all_reduce_0, mul_1",
        "return (mul_2,)",
    ]


def gather(result: str, operand: str) -> str:
    return (
        f'%{result} = "dist.all_gather"(%{operand}) {{axes = ["data"], dim = 0}} : ({V}) -> '
        f"!torch.vtensor<[8,64],f32>"
    )


def use(result: str, left: str, right: str) -> str:
    return mm(result, left, right).replace("[4,64]", "[8,64]")


@pytest.mark.parametrize(
    ("limit", "starts"),
    [
        (2 * 8 * 64 * 4, ["a", "b", "c", "use a", "d", "use b", "use c", "use d"]),
        (8 * 64 * 4, ["a", "b", "use a", "c", "use b", "d", "use c", "use d"]),
        (8 * 64 * 4 - 1, ["a", "use a", "b", "use b", "c", "use c", "d", "use d"]),
    ],
)
def test_gathers_start_some_bytes_ahead(
    emit, monkeypatch: pytest.MonkeyPatch, limit: int, starts: list[str]
) -> None:
    """Those of arguments; the others, such as one of what was just computed, start where they stand."""
    monkeypatch.setattr(prefetch, "PREFETCH_BYTES", limit)
    body, total = [], "x"
    for name in "abcd":
        body += [gather(f"{name}0", name), use(f"{name}1", total, f"{name}0")]
        total = f"{name}1"
    body += [mm("e", "a", "a"), gather("f", "e"), use("g", total, "f")]
    arguments = {f"param:{name}": T for name in "abcd"} | {"input:x": "[8,64],f32"}
    lines = emit(arguments, {"loss:l": "[8,64],f32"}, "\n".join(body), ["%g"])
    found = []
    for line in lines:
        if start := re.search(r"all_gather\((\w), ", line):
            found.append(start[1])
        elif used := re.search(r"mul\(\w+, all_gather_(\d)\)", line):
            found.append(f"use {'abcd*'[int(used[1])]}")
    assert found == [*starts, "use *"]
    assert lines.index("mul_4 = mul(a, a)") > lines.index("mul_3 = mul(mul_2, all_gather_3)")


def kernel(result: str, operand: str) -> str:
    """A kernel that gives its operand back."""
    group = f"!torch.tuple<vtensor<{T}>>"
    return f"""%{result}_in = torch.prim.TupleConstruct %{operand} : {V} -> {group}
    %{result}_out = "kern.kernel"(%{result}_in) ({{
    ^bb0(%e: tensor<4x64xf32>):
      %p = builtin.unrealized_conversion_cast %e : tensor<4x64xf32> to tuple<tensor<4x64xf32>>
      "kern.yield"(%p) : (tuple<tensor<4x64xf32>>) -> ()
    }}) {{kern.name = "same_{result}"}} : ({group}) -> {group}
    %{result} = torch.prim.TupleUnpack %{result}_out : {group} -> {V}"""


def test_gathers_of_what_kernels_prepare_start_ahead(emit) -> None:
    """The second gather starts before the first is used, with the kernel that makes its operand of a
    parameter.
    """
    body = [gather("a1", "a"), use("u", "x", "a1"), kernel("c", "b"), gather("b1", "c"), use("v", "u", "b1")]
    arguments = {"param:a": T, "param:b": T, "input:x": "[8,64],f32"}
    lines = emit(arguments, {"loss:l": "[8,64],f32"}, "\n".join(body), ["%v"])
    order = [
        n for line in lines for n in ("all_gather(a", "same_c(b)", "all_gather(same_0", "mul(x") if n in line
    ]
    assert order == ["all_gather(a", "same_c(b)", "all_gather(same_0", "mul(x"], lines


def test_collectives_are_waited_for_behind_kernels_that_do_not_read_them(emit) -> None:
    body = [reduce("a1", "a"), kernel("b1", "b"), mm("l", "b1", "a1")]
    lines = emit({"input:a": T, "input:b": T}, {"loss:l": T}, "\n".join(body), ["%l"])
    assert lines[:3] == [
        "all_reduce_0 = rank.all_reduce(a, axes=DATA)",
        "same_0, = same_b1(b)",
        "all_reduce_0 = all_reduce_0.wait()",
    ]


def test_collectives_in_flight_are_bounded(emit, monkeypatch: pytest.MonkeyPatch) -> None:
    """One operand of 1024 bytes may be held when another one starts; of two the older is waited for first."""
    monkeypatch.setattr(schedule, "IN_FLIGHT_BYTES", 1024)
    sent = [line for n in "abc" for line in (mm(n, "x", "x"), reduce(f"{n}0", n))]
    body = "\n".join([*sent, mm("d", "a0", "b0"), mm("e", "d", "c0")])
    lines = [line for line in emit({"input:x": T}, {"loss:l": T}, body, ["%e"]) if "all_reduce" in line]
    assert [line for line in lines if not line.startswith("del")] == [
        "all_reduce_0 = rank.all_reduce(mul_0, axes=DATA, reuse=True)",
        "all_reduce_1 = rank.all_reduce(mul_1, axes=DATA, reuse=True)",
        "all_reduce_0 = all_reduce_0.wait()",
        "all_reduce_2 = rank.all_reduce(mul_2, axes=DATA, reuse=True)",
        "all_reduce_1 = all_reduce_1.wait()",
        "mul_3 = mul(all_reduce_0, all_reduce_1)",
        "all_reduce_2 = all_reduce_2.wait()",
        "mul_4 = mul(mul_3, all_reduce_2)",
    ]


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([reduce("b", "x"), mm("c", "b", "b")], "the argument is not the program's own"),
        ([transpose_twice("a", "x"), reduce("b", "a"), mm("c", "b", "b")], "a view of an argument"),
        ([mm("a", "x", "x"), reduce("b", "a"), mm("c", "a", "b")], "the operand is read later"),
        (
            [mm("a", "x", "x"), transpose_twice("v", "a"), reduce("b", "v"), mm("c", "a", "b")],
            "what the operand is a view of is read later",
        ),
        (
            [mm("a", "x", "x"), transpose_twice("v", "a"), reduce("b", "a"), mm("c", "v", "b")],
            "a view of the operand is read later",
        ),
    ],
)
def test_all_reduce_spares_memory_that_is_still_needed(emit, steps: list[str], why: str) -> None:
    lines = emit({"input:x": T}, {"loss:l": T}, "\n".join(steps), ["%c"])
    assert any("rank.all_reduce(" in line for line in lines)
    assert not any("reuse" in line for line in lines), why


def test_state_is_stored_as_soon_as_its_old_value_was_read(emit) -> None:
    body = "\n".join(
        [mm("n", "w", "x"), mm("u", "x", "x"), mm("l", "w", "u"), mm("m", "l", "n"), mm("e", "m", "u")]
    )
    lines = emit({"param:w": T, "input:x": T}, {"loss:l": T, "param:w": T}, body, ["%e", "%n"])
    assert lines == [
        "new_w = mul(w, x)",
        "mul_0 = mul(x, x)",
        "mul_1 = mul(w, mul_0)",
        "rank.store(w, new_w)",
        "mul_2 = mul(mul_1, new_w)",
        "del new_w, mul_1",
        "mul_3 = mul(mul_2, mul_0)",
        "del mul_0, mul_2",
        "return (mul_3,)",
    ]


def test_state_that_does_not_change_is_left_alone(emit) -> None:
    lines = emit({"param:w": T, "input:x": T}, {"loss:l": T, "param:w": T}, mm("l", "w", "x"), ["%l", "%w"])
    assert lines == ["mul_0 = mul(w, x)", "return (mul_0,)"]


def test_no_two_state_tensors_share_memory(emit) -> None:
    body = "\n".join(
        [mm("n", "a", "b"), transpose_twice("v", "n"), transpose_twice("w", "a"), mm("l", "a", "b")]
    )
    lines = emit(
        {"param:a": T, "param:b": T, "buffer:c": T, "buffer:d": T},
        {"loss:l": T, "param:a": T, "param:b": T, "buffer:c": T, "buffer:d": T},
        body,
        ["%l", "%n", "%n", "%v", "%w"],
    )
    stores = [line.removeprefix("rank.store") for line in lines if "store" in line]
    assert [line[:9] for line in stores] == ["(c, new_c", "(d, new_d", "(a, new_a", "(b, new_a"]
    assert [line for line in stores if "clone" not in line] == ["(c, new_c)"], (
        "one of a, b and c may take the memory"
    )


def test_gathered_parameters_stay_on_their_way_while_others_are_computed(emit) -> None:
    """Of 12 parameters that are gathered after the update, 8 may be on their way at once."""
    gather = '%g{0} = "dist.broadcast"(%n{0}) {{axes = ["data"], root = 0 : i64}} : ({1}) -> {1}'
    body = "\n".join(line for i in range(12) for line in (mm(f"n{i}", f"w{i}", "x"), gather.format(i, V)))
    state = {f"param:w{i}": T for i in range(12)}
    lines = emit(
        {**state, "input:x": T}, {"loss:l": T, **state}, body, ["%n0", *(f"%g{i}" for i in range(12))]
    )
    order = [
        line.split("(")[0] + line.split("w")[1].split(".")[0]
        for line in lines
        if "broadcast(" in line or "wait" in line
    ]
    assert lines.index("new_w0 = new_w0.wait()") > lines.index(next(x for x in lines if "new_w7 =" in x))
    assert lines.index("new_w0 = new_w0.wait()") < lines.index(next(x for x in lines if "new_w9 =" in x)), (
        order
    )
    assert sum("rank.store(" in line for line in lines) == 12


def test_what_nobody_needs_is_left_out(emit) -> None:
    body = "\n".join([mm("a", "x", "x"), reduce("b", "a"), mm("c", "x", "x")])
    assert emit({"input:x": T}, {"loss:l": T}, body, ["%c"]) == ["mul_0 = mul(x, x)", "return (mul_0,)"]


def test_results_that_nobody_needs_are_freed(emit) -> None:
    body = f"""%k = torch.prim.ListConstruct %i1 : (!torch.int) -> !torch.list<int>
    %v, %i = torch.aten.sort %x, %i1, %false : {V}, !torch.int, !torch.bool -> {V}, !torch.vtensor<[4,64],si64>"""  # noqa: E501
    lines = emit({"input:x": T}, {"loss:l": T}, body, ["%v"])
    assert lines == ["sort_0, _ = sort(x, 1)", "del _", "return (sort_0,)"]


def test_comments_say_phase_and_line(emit) -> None:
    forward = mm("a", "x", "x").replace(" : ", ' {dist.phase = "forward"} : ', 1) + ' loc("src/model.py":7:1)'
    same = (
        mm("b", "a", "x").replace(" : ", ' {dist.phase = "forward"} : ', 1)
        + ' loc(callsite("src/model.py":7:9 at "run.py":3:1))'
    )
    backward = (
        mm("c", "b", "x").replace(" : ", ' {dist.phase = "backward"} : ', 1)
        + ' loc(fused["src/model.py":9:1])'
    )
    lines = emit({"input:x": T}, {"loss:l": T}, "\n".join([forward, same, backward]), ["%c"])
    assert [line for line in lines if line.startswith("#")] == [
        "# -- forward",
        "# model.py:7",
        "# -- backward",
        "# model.py:9",
    ]


def test_gradients_are_called_so(emit) -> None:
    body = mm("a", "w", "x").replace(" : ", ' {dist.name = "grad:layers.0.weight"} : ', 1)
    assert (
        emit({"param:w": T, "input:x": T}, {"loss:l": T}, body, ["%a"])[0]
        == "grad_layers_0_weight = mul(w, x)"
    )


def test_iterations_of_a_sub_axis(emit) -> None:
    body = f"""
    %zero = torch.aten.zeros_like %y, %none, %none, %none, %none, %none : {V}, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> {V}
    %inits = torch.prim.TupleConstruct %zero : {V} -> !torch.tuple<vtensor<{T}>>
    %captures = torch.prim.TupleConstruct %x : !torch.vtensor<[32,64],f32> -> !torch.tuple<vtensor<[32,64],f32>>
    %r = "dist.loop"(%inits, %captures) ({{
    ^bb0(%sum: {V}, %all: !torch.vtensor<[32,64],f32>):
      %i1_0 = torch.constant.int 1
      %part = "dist.slice"(%all) {{axes = ["data", "micro"], dim = 0 : i64}} : (!torch.vtensor<[32,64],f32>) -> {V}
      %next = torch.aten.add.Tensor %sum, %part, %i1_0 : {V}, {V}, !torch.int -> {V}
      %out = torch.prim.TupleConstruct %next : {V} -> !torch.tuple<vtensor<{T}>>
      "dist.yield"(%out) {{operandSegmentSizes = array<i32: 1, 0>}} : (!torch.tuple<vtensor<{T}>>) -> ()
    }}) {{axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []}}
      : (!torch.tuple<vtensor<{T}>>, !torch.tuple<vtensor<[32,64],f32>>) -> !torch.tuple<vtensor<{T}>>
    %s = torch.prim.TupleUnpack %r : !torch.tuple<vtensor<{T}>> -> {V}
    """  # noqa: E501
    lines = emit({"input:y": T, "input:x": "[32,64],f32"}, {"loss:l": T}, body, ["%s"])
    assert lines == [
        "data_index = rank.index(DATA)",
        "zeros_like_0 = zeros_like(y)",
        "carried_0 = zeros_like_0",
        "del zeros_like_0",
        "for micro in range(4):",
        "slice_0 = x.narrow(0, (data_index * 4 + micro) * 4, 4)",
        "carried_0 = add(carried_0, slice_0)",
        "del slice_0",
        "return (carried_0,)",
    ]


def test_a_module_of_another_level_is_refused(context: ir.Context) -> None:
    with pytest.raises(ValueError, match="not at level 3"):
        emit_program(ir.Module.parse("module {}"))


def test_statistics_of_a_layer_norm_in_halves_are_rounded(emit) -> None:
    """A GPU gives them in f32, where the trace, on a CPU, says halves."""
    x, s = "!torch.vtensor<[4,8],bf16>", "!torch.vtensor<[4,1],bf16>"
    body = f"""
    %eight = torch.constant.int 8
    %eps = torch.constant.float 1.0e-05
    %shape = torch.prim.ListConstruct %eight : (!torch.int) -> !torch.list<int>
    %out, %mean, %rstd = torch.aten.native_layer_norm %x, %shape, %none, %none, %eps : {x}, !torch.list<int>, !torch.none, !torch.none, !torch.float -> {x}, {s}, {s}
    """  # noqa: E501
    lines = emit(
        {"input:x": "[4,8],bf16"}, {"loss:o": "[4,8],bf16", "loss:m": "[4,1],bf16"}, body, ["%out", "%mean"]
    )
    assert lines == [
        "native_layer_norm_0, native_layer_norm_1, _ = native_layer_norm(x, [8], None, None, 1e-05)",
        "native_layer_norm_1 = native_layer_norm_1.to(torch.bfloat16)",
        "return (native_layer_norm_0, native_layer_norm_1)",
    ]
