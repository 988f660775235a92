"""``shardc::attention``: both paths against torch's own attention, slices against wholes, and how the op
traces.
"""

import importlib.util
import math
from contextlib import nullcontext
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from shardc.runtime.operators import attention as module

OP, BACKWARD = torch.ops.shardc.attention, torch.ops.shardc.attention_backward


def as_ops(forward, backward):
    """One path's functions with the arguments of the two ops."""
    return (
        lambda *operands: forward(module.Problem(*operands)),
        lambda grad, q, k, v, mask, out, lse, *settings: backward(
            module.Problem(q, k, v, mask, *settings), grad, out, lse
        ),
    )


PATHS = {
    "op": (OP, BACKWARD),
    "fused": as_ops(module.fused_attention, module.fused_attention_backward),
    "plain": as_ops(module.plain_attention, module.plain_attention_backward),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 6e-3, torch.bfloat16: 4e-2}
SCALE = 0.3


class Case(NamedTuple):
    """Sizes, and a mask as its shape and kind: bool, float, float with rows that see nothing, or none."""

    batch: int = 2
    heads: int = 4
    kv_heads: int = 4
    sq: int = 9
    sk: int = 9
    d: int = 8
    dv: int = 8
    mask: tuple[int, ...] | None = None
    kind: str = ""
    causal: bool = False
    q_offset: int = 0


CASES = {
    "full": Case(),
    "causal": Case(causal=True),
    "causal_wide": Case(causal=True, sk=13),
    "causal_tall": Case(causal=True, sq=13),
    "offset": Case(causal=True, sk=13, q_offset=4),
    "offset_inside": Case(causal=True, sk=20, q_offset=3),
    "offset_tall": Case(causal=True, sq=15, q_offset=5),
    "offset_sees_all": Case(causal=True, q_offset=8),
    "offset_far": Case(causal=True, q_offset=50),
    "offset_negative": Case(causal=True, q_offset=-4),
    "offset_sees_nothing": Case(causal=True, q_offset=-9),
    "grouped": Case(kv_heads=2, causal=True, sk=12, q_offset=2),
    "one_kv_head": Case(kv_heads=1, mask=(2, 1, 9, 9), kind="bool"),
    "bool": Case(mask=(1, 1, 9, 9), kind="bool"),
    "bool_padding": Case(mask=(2, 1, 1, 9), kind="bool", causal=True),
    "float": Case(mask=(1, 4, 9, 9), kind="float"),
    "float_full": Case(mask=(2, 4, 9, 12), kind="float", sk=12, causal=True, q_offset=3),
    "float_per_row": Case(mask=(2, 1, 9, 1), kind="float"),
    "dead_rows": Case(mask=(2, 1, 9, 9), kind="dead"),
    "dead_rows_causal": Case(mask=(2, 1, 9, 9), kind="dead", causal=True),
    "dead_rows_offset": Case(mask=(2, 1, 9, 12), kind="dead", causal=True, sk=12, q_offset=3),
    "dead_rows_everywhere": Case(mask=(1, 1, 9, 1), kind="dead", kv_heads=2),
    "many_blocks": Case(batch=1, heads=2, kv_heads=1, sq=70, sk=1200, causal=True, q_offset=600),
    "many_blocks_dead": Case(
        batch=1, heads=2, kv_heads=2, sq=70, sk=1200, mask=(1, 1, 70, 1200), kind="dead"
    ),
    "one_row": Case(sq=1, sk=17, causal=True, q_offset=16),
}
OTHER_HEAD_SIZES = {
    "value_narrow": Case(dv=5),
    "value_wide": Case(dv=11, kv_heads=2, causal=True, sk=12, q_offset=2),
    "value_masked": Case(dv=3, mask=(2, 1, 9, 9), kind="dead"),
}
EVERY = {**CASES, **OTHER_HEAD_SIZES}


def make_mask(case: Case, dtype: torch.dtype) -> Tensor | None:
    if case.mask is None:
        return None
    if case.kind == "float":
        return torch.randn(case.mask).to(dtype)
    keep = torch.rand(case.mask) < 0.6
    if case.kind == "bool":
        keep[..., 0] = True
        return keep
    keep[:, :, ::3] = False
    if case.mask[3] > 5:
        keep[:, :, 1, :5] = False  # dead only where the causal mask hides the rest
    return torch.zeros(case.mask, dtype=dtype).masked_fill(~keep, -math.inf)


def make(case: Case, dtype: torch.dtype) -> tuple[list[Tensor], Tensor | None, Tensor]:
    """(q, k, v), mask and the gradient of out."""
    torch.manual_seed(0)
    sizes = [
        (case.heads, case.sq, case.d),
        (case.kv_heads, case.sk, case.d),
        (case.kv_heads, case.sk, case.dv),
    ]
    operands = [torch.randn(case.batch, *size).to(dtype) for size in sizes]
    grad = torch.randn(case.batch, case.heads, case.sq, case.dv).to(dtype)
    return operands, make_mask(case, dtype), grad


def expected(case: Case, operands: list[Tensor], mask: Tensor | None, grad: Tensor) -> tuple[Tensor, ...]:
    """out, lse, dq, dk and dv in float64, by torch's plain attention with everything in one additive mask."""
    q, k, v = (x.double().requires_grad_() for x in operands)
    bias = torch.zeros(case.batch, case.heads, case.sq, case.sk, dtype=torch.float64)
    if mask is not None:
        bias = bias.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else bias + mask
    if case.causal:
        seen = torch.ones(case.sq, case.sk, dtype=torch.bool).tril(case.q_offset)
        bias = bias.masked_fill(~seen, -math.inf)
    with sdpa_kernel(SDPBackend.MATH):
        out = F.scaled_dot_product_attention(q, k, v, bias, scale=SCALE, enable_gqa=True)
    groups = case.heads // case.kv_heads
    lse = (q @ k.repeat_interleave(groups, 1).mT * SCALE + bias).logsumexp(-1)
    return out, lse.detach(), *torch.autograd.grad(out, (q, k, v), grad.double())


def run(
    path: str, case: Case, operands: list[Tensor], mask: Tensor | None, grad: Tensor
) -> tuple[Tensor, ...]:
    forward, backward = PATHS[path]
    settings = (case.causal, SCALE, case.q_offset)
    out, lse = forward(*operands, mask, *settings)
    return out, lse, *backward(grad, *operands, mask, out, lse, *settings)


def assert_close(got: tuple[Tensor, ...], want: tuple[Tensor, ...], dtype: torch.dtype) -> None:
    """Each within the dtype's bound, relative to the largest value; equal where infinite; no NaN."""
    for name, x, y in zip(("out", "lse", "dq", "dk", "dv"), got, want, strict=True):
        assert x.is_contiguous(), name
        assert x.dtype == (module.wide(dtype) if name == "lse" else dtype), name
        assert torch.equal(x.isinf(), y.isinf()) and not x.isnan().any(), name
        x, y = x.double().nan_to_num(neginf=0), y.double().nan_to_num(neginf=0)
        error = (x - y).abs().max().item()
        assert error <= TOLERANCE[dtype] * max(1.0, y.abs().max().item()), f"{name}: {error}"


RUNS = [(path, name) for path in PATHS for name in EVERY if path != "fused" or name in CASES]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("path", "name"), RUNS)
def test_equals_torch(path, name, dtype):
    inputs = make(EVERY[name], dtype)
    assert_close(run(path, EVERY[name], *inputs), expected(EVERY[name], *inputs), dtype)


@pytest.mark.parametrize("name", list(EVERY))
def test_chunks_of_rows_do_not_show(name, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_SCORES", {"cpu": 1})
    monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    case = EVERY[name]
    inputs = make(case, torch.float64)
    assert_close(run("plain", case, *inputs), expected(case, *inputs), torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["bool", "float_full", "dead_rows"])
def test_a_mask_may_be_of_another_floating_dtype(name, dtype):
    case = CASES[name]
    for mask_dtype in (torch.bfloat16, torch.float32, torch.float64):
        operands, mask, grad = make(case, dtype)
        mask = mask if mask.dtype == torch.bool else mask.bfloat16().to(mask_dtype)
        assert_close(run("op", case, operands, mask, grad), expected(case, operands, mask, grad), dtype)


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("name", ["grouped", "float_full", "dead_rows_offset"])
def test_strides_do_not_matter(path, name):
    case = CASES[name]
    operands, mask, grad = make(case, torch.float64)
    want = expected(case, operands, mask, grad)
    odd = [x.mT.contiguous().mT for x in operands]
    odd_mask = None if mask is None else mask.mT.contiguous().mT
    assert_close(run(path, case, odd, odd_mask, grad.mT.contiguous().mT), want, torch.float64)
    heads_last = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in operands]
    assert_close(run(path, case, heads_last, mask, grad), want, torch.float64)
    if mask is not None:
        expanded = mask[:1, :, :1].expand(2, case.heads, case.sq, case.sk)
        got = run(path, case, operands, expanded, grad)
        assert_close(got, expected(case, operands, expanded, grad), torch.float64)


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize(
    "name", ["causal", "causal_wide", "grouped", "float_full", "dead_rows_offset", "bool"]
)
def test_a_slice_of_the_rows_equals_the_slice_of_the_whole(path, name):
    case = CASES[name]
    (q, k, v), mask, grad = make(case, torch.float64)
    out, lse, dq, dk, dv = run(path, case, [q, k, v], mask, grad)
    parts = []
    for rows in (slice(0, 4), slice(4, 9)):
        local = case._replace(sq=rows.stop - rows.start, q_offset=case.q_offset + rows.start)
        local_mask = module._cut(mask, rows, slice(None))
        parts.append(run(path, local, [q[:, :, rows], k, v], local_mask, grad[:, :, rows]))
    joined = [torch.cat([part[i] for part in parts], dim=2) for i in range(3)]
    summed = [parts[0][i] + parts[1][i] for i in (3, 4)]
    assert_close((*joined, *summed), (out, lse, dq, dk, dv), torch.float64)


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize(
    "name", ["causal", "causal_wide", "float_full", "dead_rows", "dead_rows_offset", "grouped"]
)
def test_parts_of_the_columns_merge_to_the_whole(path, name):
    """What a ring needs: out and lse merge, and the backward pass of a part takes those of the whole."""
    case = CASES[name]
    (q, k, v), mask, grad = make(case, torch.float64)
    out, lse, *grads = run(path, case, [q, k, v], mask, grad)
    forward, backward = PATHS[path]
    merged, parts = torch.zeros_like(out), []
    for cols in (slice(0, 5), slice(5, case.sk)):
        settings = (case.causal, SCALE, case.q_offset - cols.start)
        operands = (q, k[:, :, cols], v[:, :, cols], module._cut(mask, slice(None), cols))
        part, part_lse = forward(*operands, *settings)
        merged += part * (part_lse - lse).exp().nan_to_num(0).unsqueeze(-1)
        parts.append(backward(grad, *operands, out, lse, *settings))
    joined = [torch.cat([part[i] for part in parts], dim=2) for i in (1, 2)]
    assert_close((merged, lse, parts[0][0] + parts[1][0], *joined), (out, lse, *grads), torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("name", ["grouped", "dead_rows", "float"])
def test_slices_of_heads_and_batch_equal_those_of_the_whole(path, name, dtype):
    case = CASES[name]
    (q, k, v), mask, grad = make(case, dtype)
    want = run(path, case, [q, k, v], mask, grad)
    groups = case.heads // case.kv_heads
    for batch, kv_heads in ((slice(0, 1), slice(0, case.kv_heads)), (slice(1, 2), slice(1, 2))):
        heads = slice(kv_heads.start * groups, kv_heads.stop * groups)
        local_mask = None if mask is None else mask.expand(case.batch, case.heads, -1, -1)[batch, heads]
        local = [q[batch, heads], k[batch, kv_heads], v[batch, kv_heads]]
        got = run(path, case, local, local_mask, grad[batch, heads])
        slices = (heads, heads, heads, kv_heads, kv_heads)
        assert_close(got, tuple(x[batch, s] for x, s in zip(want, slices, strict=True)), dtype)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"heads": 0}, {"sq": 0}, {"sk": 0}, {"d": 0}, {"dv": 0}])
def test_empty_operands(sizes):
    case = Case(**sizes)
    operands, mask, grad = make(case, torch.float32)
    got = run("op", case, operands, mask, grad)
    assert [x.shape for x in got[2:]] == [x.shape for x in operands]
    assert got[0].shape == grad.shape and got[1].shape == grad.shape[:3]
    if "sk" in sizes:
        assert (got[0] == 0).all() and (got[1] == -math.inf).all() and (got[2] == 0).all()


def test_a_long_sequence_never_holds_all_scores():
    """The largest tensor that the plain path makes, forward and backward, is a chunk of scores."""
    largest = 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                largest = max(largest, result.numel())
            return result

    case = Case(batch=1, heads=2, kv_heads=1, sq=2048, sk=2048, causal=True)
    inputs = make(case, torch.float32)
    with Largest():
        run("plain", case, *inputs)
    assert 2 * 2048 * 8 <= largest <= module.CHUNK_SCORES["cpu"] < 2 * 2048 * 2048


def step(q, k, v, mask):
    """A program with a forward and a backward pass; lse is not used."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out, lse = OP(*leaves, mask, True, SCALE)
    assert out.requires_grad and not lse.requires_grad
    return torch.autograd.grad((out * out).sum(), leaves)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic", "on_fake_tensors"])
@pytest.mark.parametrize("name", ["causal", "grouped", "bool", "value_wide"])
def test_traces_as_two_ops(name, tracing, functional):
    operands, mask, _ = make(EVERY[name]._replace(q_offset=0), torch.float64)
    function = dispatch_functionalize(step) if functional else step
    if tracing == "on_fake_tensors":
        mode = FakeTensorMode()
        fakes = [None if x is None else mode.from_tensor(x) for x in (*operands, mask)]
        with mode:
            graph = make_fx(function)(*fakes)
    else:
        graph = make_fx(function, tracing_mode=tracing)(*operands, mask)
    targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert [x for x in targets if not x.startswith("aten.") and "getitem" not in x] == [
        "shardc.attention.default",
        "shardc.attention_backward.default",
    ]
    assert not any("mm" in x or "softmax" in x for x in targets)
    for got, want in zip(graph(*operands, mask), step(*operands, mask), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", list(EVERY))
def test_fake_kernels_say_what_the_real_ones_do(name, dtype):
    case = EVERY[name]
    operands, mask, grad = make(case, dtype)
    real = run("op", case, operands, mask, grad)
    with FakeTensorMode() as mode:
        fakes = [None if x is None else mode.from_tensor(x) for x in (*operands, mask, grad)]
        fake = run("op", case, fakes[:3], fakes[3], fakes[4])
    for x, y in zip(fake, real, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert x.is_contiguous() and y.is_contiguous()


def test_autograd_gives_gradients_of_the_operands_that_need_them():
    case = CASES["grouped"]
    (q, k, v), mask, grad = make(case, torch.float64)
    want = expected(case, [q, k, v], mask, grad)
    q.requires_grad_()
    out, _ = OP(q, k, v, mask, case.causal, SCALE, case.q_offset)
    (dq,) = torch.autograd.grad(out, q, grad)
    torch.testing.assert_close(dq, want[2], rtol=0, atol=1e-12)


def test_a_mask_that_requires_grad_is_refused():
    (q, k, v), mask, _ = make(CASES["float"], torch.float64)
    mask.requires_grad_()
    with pytest.raises(RuntimeError, match="no gradient for its mask"):
        OP(q.requires_grad_(), k, v, mask, False, SCALE)
    with torch.no_grad():
        OP(q, k, v, mask, False, SCALE)


def test_a_second_derivative_is_refused():
    (q, k, v), _, _ = make(Case(), torch.float64)
    out, _ = OP(q.requires_grad_(), k, v, None, False, SCALE)
    (dq,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="attention_backward has no derivative"):
        dq.sum().backward()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(4, 9, 8)}, "must have 4 dims"),
        ({"k": torch.zeros(2, 4, 9, 8, dtype=torch.float64)}, "one floating dtype"),
        ({"v": torch.zeros(2, 4, 8, 8)}, "do not fit together"),
        ({"q": torch.zeros(2, 4, 9, 7)}, "do not fit together"),
        ({"k": torch.zeros(2, 3, 9, 8), "v": torch.zeros(2, 3, 9, 8)}, "heads of k must divide"),
        ({"mask": torch.zeros(9, 9)}, "must have 4 dims, each 1 or"),
        ({"mask": torch.zeros(1, 2, 9, 9)}, "must have 4 dims, each 1 or"),
        ({"mask": torch.zeros(1, 1, 9, 9, dtype=torch.int64)}, "bool or floating"),
    ],
)
def test_bad_operands_are_named(change, message):
    same = torch.zeros(2, 4, 9, 8)
    good = {"q": same, "k": same, "v": same, "mask": None, **change}
    for mode in (nullcontext(), FakeTensorMode(allow_non_fake_inputs=True)):
        with mode, pytest.raises(ValueError, match=message):
            OP(*good.values(), False, SCALE)


def test_a_copy_of_the_module_reuses_the_ops():
    spec = importlib.util.spec_from_file_location("shardc.runtime.operators.copy", module.__file__)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    operands, mask, _ = make(Case(), torch.float32)
    assert torch.equal(copy.attention(*operands, mask, False, SCALE)[0], OP(*operands, mask, False, SCALE)[0])


@pytest.mark.parametrize("library", ["flash", *module.LIBRARIES])
def test_calls_of_libraries_are_what_torch_takes(library):
    """On tensors of a GPU that is not here: operators, arguments and shapes, not values."""
    with FakeTensorMode():
        q, k, v, grad = (torch.empty(2, 4, 37, 64, dtype=torch.bfloat16, device="cuda") for _ in range(4))
        problem = module.Problem(q, k, v, None, True, SCALE, library=library)
        out, lse = module._piece_forward(problem)
        whole = torch.empty(2, 4, 37, device="cuda")
        made = module._piece_backward(problem, grad, out, whole)
    assert out.shape == q.shape and lse.shape == (2, 4, 37) and lse.dtype == torch.float32
    assert [x.shape for x in made] == [q.shape] * 3


@pytest.mark.parametrize("keys, mask", [(37, None), (37, torch.bool), (48, torch.float32)])
def test_efficient_kernels_take_masks_and_grouped_heads(keys, mask):
    """On tensors of a GPU that is not here, as above; that a bias is aligned is asserted, for only a GPU
    would refuse it.
    """
    with FakeTensorMode():
        q, grad = (torch.empty(2, 4, 37, 64, device="cuda") for _ in range(2))
        k, v = (torch.empty(2, 2, keys, 64, device="cuda") for _ in range(2))
        shown = None if mask is None else torch.empty(2, 1, 1, keys, dtype=mask, device="cuda")
        problem = module._prepared(module.Problem(q, k, v, shown, False, SCALE, library=module.EFFICIENT))
        out, lse = module._piece_forward(problem)
        made = module._piece_backward(problem, grad, out, torch.empty(2, 4, 37, device="cuda"))
        bias = module._bias(problem.mask, q, k)
    assert (
        out.shape == q.shape
        and lse.shape == (2, 4, 37)
        and [x.shape for x in made] == [q.shape, k.shape, k.shape]
    )
    if bias is not None:
        assert bias.shape == (2, 4, 37, keys) and bias.stride() == (48, 0, 0, 1)


@pytest.mark.parametrize("kv_heads, mask", [(2, False), (4, True), (1, True)])
def test_what_efficient_kernels_are_given_says_what_the_op_says(kv_heads, mask, monkeypatch):
    """Their operands and results, with plain ops in their place."""
    case = Case(kv_heads=kv_heads, mask=(2, 1, 9, 9) if mask else None, kind="dead" if mask else "")
    (q, k, v), shown, grad = make(case, torch.float64)
    bias = module._bias(shown, q, k)
    keys, values = (module._each_head(x, 4) for x in (k, v))
    every = module.Problem(q, keys, values, bias, False, SCALE)
    out, lse = module.plain_attention(every)
    out, lse = module._without_dead_rows(
        out + torch.where(lse == -math.inf, math.nan, 0.0).unsqueeze(-1), lse, shown
    )
    dq, dk, dv = module.plain_attention_backward(every, grad, out, lse)
    got = (out, lse, dq, *(module._of_groups(x, kv_heads) for x in (dk, dv)))
    assert_close(got, expected(case, [q, k, v], shown, grad), torch.float64)


def test_efficient_kernels_read_the_result_with_heads_beside_sizes(monkeypatch):
    """Their gradient ignores the strides of the forward's result: seen on an H200, as wrong numbers."""
    given = []

    def kernel(grad_out, q, k, v, bias, out, *more, **_):
        given.append(out)
        return q, k, v, None

    name = "_scaled_dot_product_efficient_attention_backward"
    monkeypatch.setattr(torch.ops.aten, name, kernel, raising=False)
    q = torch.randn(2, 4, 37, 64)
    out = torch.randn(2, 4, 37, 64)
    problem = module.Problem(q, q, q, None, False, SCALE, library=module.EFFICIENT)
    module._library_backward(problem, out, out, torch.zeros(2, 4, 37))
    assert torch.equal(given[0], out) and given[0].transpose(1, 2).is_contiguous()


FORMS = {
    "flash": ({}, ["flash", "cudnn", "efficient"]),
    "causal": ({"causal": True, "kv_heads": 2}, ["flash", "cudnn", "efficient"]),
    "f32": ({"dtype": torch.float32}, ["efficient"] * 3),
    "masked": ({"mask": torch.bool}, ["efficient"] * 3),
    "mask of another dtype": ({"mask": torch.float32}, [None] * 3),
    "masked and causal": ({"mask": torch.bool, "causal": True}, [None] * 3),
    "odd size": ({"d": 12}, [None] * 3),
    "f64": ({"dtype": torch.float64}, [None] * 3),
    "tall": ({"causal": True, "sq": 16}, [None] * 3),
}


@pytest.mark.parametrize("form", FORMS)
def test_who_computes_it_on_a_gpu(form):
    asked, wanted = FORMS[form]
    dtype, d, heads = asked.get("dtype", torch.bfloat16), asked.get("d", 64), asked.get("kv_heads", 4)
    q = torch.empty(2, 4, asked.get("sq", 9), d, dtype=dtype)
    k = torch.empty(2, heads, 9, d, dtype=dtype)
    mask = torch.empty(2, 1, 1, 9, dtype=asked["mask"]) if "mask" in asked else None
    problem = module.Problem(q, k, k, mask, asked.get("causal", False), SCALE)
    assert [
        module.library_for(problem._replace(library=name)) for name in ("flash", *module.LIBRARIES)
    ] == wanted


@pytest.mark.parametrize("library", module.LIBRARIES)
def test_libraries_are_the_op_on_a_cpu(library):
    operands, _, grad = make(Case(causal=True), torch.float32)
    out, lse = OP(*operands, None, True, SCALE)
    settings = (None, out, lse, True, SCALE, 0)
    assert torch.equal(getattr(OP, library)(*operands, None, True, SCALE)[0], out)
    for x, y in zip(
        getattr(BACKWARD, library)(grad, *operands, *settings),
        BACKWARD(grad, *operands, *settings),
        strict=True,
    ):
        assert torch.equal(x, y)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", list(EVERY))
def test_cuda_equals_torch(name, dtype):
    case = EVERY[name]
    operands, mask, grad = make(case, dtype)
    on_device = [None if x is None else x.cuda() for x in (*operands, mask, grad)]
    got = run("op", case, on_device[:3], on_device[3], on_device[4])
    assert_close(tuple(x.cpu() for x in got), expected(case, operands, mask, grad), dtype)
