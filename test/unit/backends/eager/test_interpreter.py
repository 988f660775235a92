"""Running programs: ATen calls, runtime integers, widening, memory, errors."""

from __future__ import annotations

import weakref

import pytest
import torch

from shardc.backends.eager.interpreter import run
from shardc.diagnostics.oracle import BadArguments, ExecutionFailed, NoStep

X = torch.arange(12.0).view(3, 4)
MESH = '"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 4, "time"]]} : () -> ()\n'


def step(body: str, result: str, argument: str = "!torch.vtensor<[3,4],f32>") -> str:
    """A step from ``%x`` to ``%r``."""
    return f"func.func @step(%x: {argument}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"


def test_constants_lists_and_keyword_arguments(parse):
    body = """
      %none = torch.constant.none
      %device = torch.constant.device "cuda:0"
      %layout = torch.constant.int 0
      %false = torch.constant.bool false
      %f64 = torch.constant.int 7
      %two = torch.constant.int 2
      %six = torch.constant.int 6
      %shape = torch.prim.ListConstruct %two, %six : (!torch.int, !torch.int) -> !torch.list<int>
      %preserve = torch.constant.int 1
      %y = torch.aten.view %x, %shape : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[2,6],f32>
      %r = torch.aten._to_copy %y, %f64, %layout, %device, %none, %false, %preserve
        : !torch.vtensor<[2,6],f32>, !torch.int, !torch.int, !torch.Device, !torch.none, !torch.bool, !torch.int
        -> !torch.vtensor<[2,6],f64>"""  # noqa: E501
    [[out]] = run(parse(step(body, "!torch.vtensor<[2,6],f64>")), [[X]])
    assert torch.equal(out, X.view(2, 6).double())


def test_lists_of_tensors_and_absent_ones(parse):
    body = """
      %none = torch.constant.none
      %zero = torch.constant.int 0
      %i64 = torch.constant.int 4
      %three = torch.constant.int 3
      %where = torch.aten.arange %three, %i64, %none, %none, %none
        : !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[3],si64>
      %both = torch.prim.ListConstruct %x, %x
        : (!torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32>) -> !torch.list<vtensor>
      %cat = torch.aten.cat %both, %zero : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[6,4],f32>
      %indices = torch.prim.ListConstruct %none, %where
        : (!torch.none, !torch.vtensor<[3],si64>) -> !torch.list<optional<vtensor>>
      %r = torch.aten.index.Tensor %cat, %indices
        : !torch.vtensor<[6,4],f32>, !torch.list<optional<vtensor>> -> !torch.vtensor<[6,3],f32>"""
    [[out]] = run(parse(step(body, "!torch.vtensor<[6,3],f32>")), [[X]])
    assert torch.equal(out, torch.cat([X, X])[:, :3])


def test_several_results(parse):
    body = """
      %one = torch.constant.int 1
      %false = torch.constant.bool false
      %values, %places = torch.aten.max.dim %x, %one, %false
        : !torch.vtensor<[3,4],f32>, !torch.int, !torch.bool -> !torch.vtensor<[3],f32>, !torch.vtensor<[3],si64>
      %r = torch.aten.add.Tensor %values, %places, %one
        : !torch.vtensor<[3],f32>, !torch.vtensor<[3],si64>, !torch.int -> !torch.vtensor<[3],f32>"""  # noqa: E501
    [[out]] = run(parse(step(body, "!torch.vtensor<[3],f32>")), [[X]])
    assert torch.equal(out, X.max(1).values + 3)


def test_a_result_that_is_not_asked_for(parse):
    g, w = "!torch.vtensor<[1,2,4,4],f32>", "!torch.vtensor<[2,2,1,1],f32>"
    body = f"""
      %none = torch.constant.none
      %false = torch.constant.bool false
      %true = torch.constant.bool true
      %0 = torch.constant.int 0
      %1 = torch.constant.int 1
      %zeros = torch.prim.ListConstruct %0, %0 : (!torch.int, !torch.int) -> !torch.list<int>
      %ones = torch.prim.ListConstruct %1, %1 : (!torch.int, !torch.int) -> !torch.list<int>
      %mask = torch.prim.ListConstruct %false, %true, %false : (!torch.bool, !torch.bool, !torch.bool) -> !torch.list<bool>
      %2 = torch.constant.int 2
      %f32 = torch.constant.int 6
      %shape = torch.prim.ListConstruct %2, %2, %1, %1 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
      %k = torch.aten.full %shape, %1, %f32, %none, %none, %none
        : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> {w}
      %a, %r, %b = torch.aten.convolution_backward %x, %x, %k, %none, %ones, %zeros, %ones, %false, %zeros, %1, %mask
        : {g}, {g}, {w}, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>,
          !torch.int, !torch.list<bool> -> !torch.none, {w}, !torch.none"""  # noqa: E501
    x = torch.arange(32.0).view(1, 2, 4, 4)
    [[out]] = run(parse(step(body, w, g)), [[x]])
    assert torch.equal(out[:, :, 0, 0], torch.einsum("nohw,nihw->oi", x, x))


def test_a_view_works_on_any_layout(parse):
    body = """
      %minus = torch.constant.int -1
      %flat = torch.prim.ListConstruct %minus : (!torch.int) -> !torch.list<int>
      %t = torch.aten.t %x : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[4,3],f32>
      %r = torch.aten.view %t, %flat : !torch.vtensor<[4,3],f32>, !torch.list<int> -> !torch.vtensor<[12],f32>"""  # noqa: E501
    [[out]] = run(parse(step(body, "!torch.vtensor<[12],f32>")), [[X]])
    assert torch.equal(out, X.t().reshape(-1))


def test_operators_of_our_own(parse):
    body = """
      %f32 = torch.constant.int 6
      %five = torch.constant.int 5
      %two = torch.constant.int 2
      %ten = torch.constant.int 10
      %size = torch.prim.ListConstruct %five : (!torch.int) -> !torch.list<int>
      %from = torch.prim.ListConstruct %two : (!torch.int) -> !torch.list<int>
      %of = torch.prim.ListConstruct %ten : (!torch.int) -> !torch.list<int>
      %r = torch.operator "torch.shardc.uniform"(%x, %five, %size, %from, %of, %f32)
        : (!torch.vtensor<[],si64>, !torch.int, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.int)
        -> !torch.vtensor<[5],f32>"""  # noqa: E501
    module = parse(step(body, "!torch.vtensor<[5],f32>", "!torch.vtensor<[],si64>"))
    [[out]] = run(module, [[torch.tensor(3)]])
    whole = torch.ops.shardc.uniform(torch.tensor(3), 5, [10], [0], [10], dtype=torch.float32)
    assert torch.equal(out, whole[2:7])
    assert run(module, [[torch.tensor(3)]], widen=True)[0][0].dtype == torch.float64


WIDENED = """
  %none = torch.constant.none
  %bf16 = torch.constant.int 15
  %half = torch.constant.float 0.1
  %three = torch.constant.int 3
  %shape = torch.prim.ListConstruct %three : (!torch.int) -> !torch.list<int>
  %rounded = torch.prims.convert_element_type %x, %bf16 : !torch.vtensor<[3],f32>, !torch.int -> !torch.vtensor<[3],bf16>
  %c = torch.aten.full %shape, %half, %none, %none, %none, %none
    : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[3],f32>
  %r = torch.aten.mul.Tensor %rounded, %c : !torch.vtensor<[3],bf16>, !torch.vtensor<[3],f32> -> !torch.vtensor<[3],f32>
"""  # noqa: E501


def test_widening_reaches_dtype_arguments_and_default_dtypes(parse):
    module = parse(step(WIDENED, "!torch.vtensor<[3],f32>", "!torch.vtensor<[3],f32>"))
    x = torch.tensor([1.001, 2.002, 3.003])
    [[narrow]] = run(module, [[x]])
    assert torch.equal(narrow, x.bfloat16() * torch.full((3,), 0.1))
    [[wide]] = run(module, [[x]], widen=True)
    assert torch.equal(wide, x.double() * 0.1)
    assert torch.get_default_dtype() == torch.float32


def test_the_default_dtype_is_restored_after_an_error(parse):
    body = (
        "%r = torch.aten.mm %x, %x : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> "
        "!torch.vtensor<[3,4],f32>"
    )
    with pytest.raises(ExecutionFailed):
        run(parse(step(body, "!torch.vtensor<[3,4],f32>")), [[X]], widen=True)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    "body",
    [
        "%c = torch.constant.none\n%r = torch.aten.clone %x, %c : !torch.vtensor<[3,4],f32>, !torch.none "
        "-> !torch.vtensor<[3,4],f32>",
        "%r = torch.aten.alias %x : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>",
    ],
)
def test_results_share_no_memory_with_arguments(parse, body):
    x = X.clone()
    [[out]] = run(parse(step(body, "!torch.vtensor<[3,4],f32>")), [[x]])
    out.zero_()
    assert torch.equal(x, X)


def test_an_argument_returned_as_it_is_is_a_copy(parse):
    x = X.clone()
    text = (
        "func.func @step(%x: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> { return %x : "
        "!torch.vtensor<[3,4],f32> }"
    )
    [[out]] = run(parse(text), [[x]])
    assert torch.equal(out, x) and out.data_ptr() != x.data_ptr()


def test_values_are_freed_after_their_last_use(parse):
    names = ["a", "b", "c", "r"]
    ops = [
        f'%{new} = torch.aten.exp %{old} {{dist.name = "{new}"}} : !torch.vtensor<[3,4],f32> -> '
        f"!torch.vtensor<[3,4],f32>"
        for old, new in zip(["x", *names], names, strict=False)
    ]
    seen: dict[str, weakref.ref] = {}
    alive: dict[str, list[str]] = {}

    def observe(name, values, op):
        seen[name] = weakref.ref(values[0])
        alive[name] = [n for n, tensor in seen.items() if tensor() is not None]

    run(parse(step("\n".join(ops), "!torch.vtensor<[3,4],f32>")), [[X]], observe=observe)
    assert alive == {"a": ["a"], "b": ["a", "b"], "c": ["b", "c"], "r": ["c", "r"]}


def test_one_op_may_bear_several_names(parse):
    body = """
      %one = torch.constant.int 1
      %false = torch.constant.bool false
      %r, %places = torch.aten.max.dim %x, %one, %false {dist.name = "grad:w, places#1"}
        : !torch.vtensor<[3,4],f32>, !torch.int, !torch.bool -> !torch.vtensor<[3],f32>, !torch.vtensor<[3],si64>"""  # noqa: E501
    seen = {}
    run(
        parse(step(body, "!torch.vtensor<[3],f32>")),
        [[X]],
        observe=lambda n, v, op: seen.update({n: (v[0], op.name)}),
    )
    assert set(seen) == {"grad:w", "places"}
    assert seen["places"][0].tolist() == [3, 3, 3] and seen["places"][1] == "torch.aten.max.dim"


def test_runtime_integers(parse):
    body = """
      %one = torch.constant.int 1
      %ten = torch.constant.int 10
      %at = "dist.offset"() {axes = ["data"], extent = 3, scale = 2, base = 1} : () -> !torch.int
      %more = torch.aten.mul.int %at, %ten : !torch.int, !torch.int -> !torch.int
      %again = "dist.offset"(%more) {axes = ["data"], extent = 1, scale = 1, base = 0} : (!torch.int) -> !torch.int
      %r = torch.aten.add.Scalar %x, %again, %one
        : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,4],f32>"""  # noqa: E501
    [out] = run(parse(MESH + step(body, "!torch.vtensor<[3,4],f32>")), [[X, X]])
    assert torch.equal(out[0], X + 10) and torch.equal(out[1], X + 71)


def test_an_int_overload_on_tensors_is_no_runtime_integer(parse):
    body = """
      %one = torch.constant.int 1
      %zero = torch.constant.int 0
      %r = torch.aten.transpose.int %x, %zero, %one
        : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,3],f32>"""
    [[out]] = run(parse(step(body, "!torch.vtensor<[4,3],f32>")), [[X]])
    assert torch.equal(out, X.t())


def test_ranks_with_the_same_operands_share_the_work(parse):
    body = "%r = torch.aten.exp %x : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>"
    module = parse(MESH + step(body, "!torch.vtensor<[3,4],f32>"))
    [same] = run(module, [[X, X]])
    assert same[0] is same[1]
    [apart] = run(module, [[X, X + 1]])
    assert torch.equal(apart[1], (X + 1).exp())


def fails(parse, body: str, pattern: str) -> None:
    with pytest.raises(ExecutionFailed, match=pattern):
        run(parse(step(body, "!torch.vtensor<[3,4],f32>")), [[X]])


def test_an_unknown_operator_is_named_with_its_line(parse):
    body = (
        '%r = torch.operator "torch.nowhere.nothing"(%x) : (!torch.vtensor<[3,4],f32>) -> '
        "!torch.vtensor<[3,4],f32>"
        ' loc(callsite("model.py":7:1 at "train.py":40:1))'
    )
    fails(parse, body, r"nowhere.nothing could not be executed(.|\n)*at: model.py:7\n")


def test_a_wrong_shape_is_told(parse):
    body = "%r = torch.aten.t %x : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>"
    fails(
        parse,
        body,
        r"aten.t could not.*the tensor is a !torch.vtensor<\[4,3\],f32>, but the program has a .*\[3,4\]",
    )


def test_a_wrong_dtype_is_told(parse):
    body = (
        "%r = torch.aten.argsort %x, %i, %b : !torch.vtensor<[3,4],f32>, !torch.int, !torch.bool -> "
        "!torch.vtensor<[3,4],f32>"
    )
    fails(
        parse,
        "%i = torch.constant.int 0\n%b = torch.constant.bool false\n" + body,
        r"the tensor is a !torch.vtensor<\[3,4\],si64>, but the program has",
    )


def test_an_op_that_writes_is_refused(parse):
    body = (
        '%r = torch.operator "torch.aten.relu_"(%x) : (!torch.vtensor<[3,4],f32>) -> '
        "!torch.vtensor<[3,4],f32>"
    )
    fails(parse, body, "writes to its operands")
    assert X[0, 0] == 0


def test_bad_arguments_are_named(parse):
    text = MESH + (
        'func.func @step(%x: !torch.vtensor<[3,4],f32> {dist.role = "input", dist.name = "ids"})'
        " -> !torch.vtensor<[3,4],f32> { return %x : !torch.vtensor<[3,4],f32> }"
    )
    module = parse(text)
    with pytest.raises(BadArguments, match="1 are needed, but 0 were given"):
        run(module, [])
    with pytest.raises(BadArguments, match="input 'ids' of @step: tensors for 3 ranks, not for 1 or all 2"):
        run(module, [[X, X, X]])
    with pytest.raises(BadArguments, match=r"input 'ids' of @step: on rank 1 .*\[4,3\],f32>, but"):
        run(module, [[X, X.t()]])
    with pytest.raises(BadArguments, match="f64"):
        run(module, [[X.double()]])
    with pytest.raises(NoStep):
        run(parse(MESH), [])
