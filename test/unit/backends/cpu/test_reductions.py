"""Reductions over rows, columns and all elements, fused with ops before and after them, against f64."""

import pytest
import torch
import torch.nn.functional as F
from bodies import NAMES, Body, T, compiled
from programs import (
    ADD,
    NEGATIVE_INFINITY,
    constants,
    layer_norm,
    layer_norm_backward,
    log_softmax,
    rms_norm,
    rms_norm_backward,
    softmax,
    softmax_backward,
)

SIZES = [(1, 1), (1, 127), (7, 1), (129, 7), (127, 129), (33, 4097), (0, 5)]
THREADED = "work_per_thread = 500 : i64"


def close(got, exact, factor=1.0):
    """Within 2e-6 of the largest element (of 1 at least), times ``factor``."""
    scale = max(1.0, exact.abs().max().item()) if exact.numel() else 1.0
    torch.testing.assert_close(got.double(), exact, rtol=2e-6 * factor, atol=2e-6 * scale * factor)


def run(body, *tensors):
    body.config = THREADED
    return compiled(body)(*tensors)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SIZES)
def test_softmax_and_its_backward(shape, threads):
    x, dy = 5 * torch.randn(shape), torch.randn(shape)
    (y,) = run(softmax(*shape), x)
    exact = torch.softmax(x.double(), -1)
    close(y, exact)
    (dx,) = run(softmax_backward(*shape), dy, y)
    close(dx, (dy - (dy.double() * exact).sum(-1, keepdim=True)) * exact)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SIZES)
def test_log_softmax(shape, threads):
    x = 5 * torch.randn(shape)
    close(run(log_softmax(*shape), x)[0], torch.log_softmax(x.double(), -1))


def test_softmax_with_masked_and_broken_rows():
    x = torch.randn(5, 40)
    x[0, 3:] = -float("inf")
    x[1, :] = -float("inf")
    x[2, 5] = float("nan")
    x[3, 7] = float("inf")
    torch.testing.assert_close(run(softmax(5, 40), x)[0], torch.softmax(x, -1), equal_nan=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SIZES)
def test_layer_norm_and_its_backward(shape, threads):
    x, dy = torch.randn(shape) + 3, torch.randn(shape)
    w, b = torch.randn(shape[1]), torch.randn(shape[1])
    got = run(layer_norm(*shape), x, w, b)
    exact = torch.native_layer_norm(x.double(), [shape[1]], w.double(), b.double(), 1e-5)
    for one, other in zip(got, exact, strict=True):
        close(one, other.view(one.shape), factor=4)
    if shape[1] == 1:
        return  # the gradient of x is 0 times a large number
    mean, rstd = exact[1], exact[2]
    gradients = run(layer_norm_backward(*shape), dy, x, mean.float().flatten(), rstd.float().flatten(), w)
    wanted = torch.ops.aten.native_layer_norm_backward(
        dy.double(), x.double(), [shape[1]], mean, rstd, w.double(), b.double(), [True] * 3
    )
    for one, other in zip(gradients, wanted, strict=True):
        close(one, other, factor=4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", SIZES)
def test_rms_norm_and_its_backward(shape, threads):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    w = torch.randn(shape[1], dtype=torch.float64, requires_grad=True)
    dy = torch.randn(shape)
    y = F.rms_norm(x, (shape[1],), w, 1e-6)
    y.backward(dy.double())
    got, rstd = run(rms_norm(*shape), x.detach().float(), w.detach().float())
    close(got, y.detach(), factor=4)
    if shape[1] == 1:
        return
    dx, dw = run(rms_norm_backward(*shape), dy, x.detach().float(), rstd, w.detach().float())
    close(dx, x.grad, factor=4)
    close(dw, w.grad, factor=4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", [(4, 33, 65), (1, 1, 1), (2, 0, 3), (3, 5, 1), (40, 3, 70)])
@pytest.mark.parametrize("over", [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
def test_sum_over_any_dims(shape, over, threads):
    """The sum of squares over ``over``, and a pointwise op on the sum after it."""
    body = Body("sums")
    x = body.argument(shape)
    total = body.reduce([x], "%q = arith.mulf %0, %0 : f32\n%r = arith.addf %q, %acc : f32", over, "0.0")
    body.results = [total, body.map([total], "%r = math.sqrt %0 : f32")]
    value = torch.randn(shape)
    got = run(body, value)
    exact = (value.double() ** 2).sum(over)
    close(got[0], exact)
    close(got[1], exact.sqrt())


@pytest.mark.parametrize("over", [[0], [1], [0, 1]])
def test_centered_by_a_sum(over, threads):
    """Something the size of the input made from the sum: rows in one pass, the others in a second."""
    body = Body("centered")
    x = body.argument((37, 70))
    total = body.reduce([x], ADD, over, "0.0")
    at = ", ".join(f"d{i}" for i in range(2) if i not in over)
    body.results = [body.map([x, (total, at)], "%r = arith.subf %0, %1 : f32")]
    value = torch.randn(37, 70)
    close(run(body, value)[0], value.double() - value.double().sum(over, keepdim=True))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "element, dtype", [("f64", torch.float64), ("i64", torch.int64), ("i32", torch.int32)]
)
@pytest.mark.parametrize(
    "op, start, reference",
    [("add", 0, torch.sum), ("mul", 1, torch.prod), ("max", None, torch.amax), ("min", None, torch.amin)],
)
@pytest.mark.parametrize("dim", [0, 1])
def test_joins_of_other_types(element, dtype, op, start, reference, dim, threads):
    floating = element == "f64"
    name = {"max": "maximum" if floating else "maxs", "min": "minimum" if floating else "mins"}.get(op, op)
    width = torch.iinfo(dtype) if not floating else None
    low_high = {"max": ("0xFFF0000000000000", "min"), "min": ("0x7FF0000000000000", "max")}
    begin = (
        f"{start}{'.0' if floating else ''}"
        if start is not None
        else (low_high[op][0] if floating else str(getattr(width, low_high[op][1])))
    )
    body = Body(f"join_{op}_{element}")
    x = body.argument((19, 21), element)
    body.results = [
        body.reduce(
            [x], f"%r = arith.{name}{'f' if floating else 'i'} %0, %acc : {element}", [dim], begin, element
        )
    ]
    value = torch.randn(19, 21, dtype=dtype) if floating else torch.randint(-3, 4, (19, 21), dtype=dtype)
    wanted = reference(value, dim).to(dtype)
    torch.testing.assert_close(run(body, value)[0], wanted)


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_half_precision_accumulates_in_f32(element, threads):
    dtype = {name: dtype for dtype, name in NAMES.items()}[element]
    body = Body(f"sum_{element}")
    x = body.argument((31, 1000), element)
    code = f"%w = arith.extf %0 : {element} to f32\n%r = arith.addf %w, %acc : f32"
    rows, columns = (body.reduce([x], code, [d], "0.0") for d in (1, 0))
    narrow = f"%r = arith.truncf %0 : f32 to {element}"
    body.results = [body.map([t], narrow, element=element) for t in (rows, columns)]
    value = torch.randn(31, 1000).to(dtype)
    got = run(body, value)
    eps = torch.finfo(dtype).eps
    for one, dim in zip(got, (1, 0), strict=True):
        torch.testing.assert_close(one.double(), value.double().sum(dim), rtol=eps, atol=1e-4)


def test_argmax_has_two_accumulators(threads):
    """A reduction that joins in no known way runs over whole rows."""
    body = Body("argmax")
    x = body.argument((9, 50))
    text = f"""linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>,
        affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}}
        ins({x.name} : {x.type}) outs(%best, %where : tensor<9xf32>, tensor<9xi64>) {{
    ^bb0(%v: f32, %b: f32, %w: i64):
        %j = linalg.index 1 : index
        %k = arith.index_cast %j : index to i64
        %more = arith.cmpf ogt, %v, %b : f32
        %nb = arith.select %more, %v, %b : f32
        %nw = arith.select %more, %k, %w : i64
        linalg.yield %nb, %nw : f32, i64
    }} -> (tensor<9xf32>, tensor<9xi64>)"""  # noqa: E501
    for name, type_, start, element in (
        ("best", "tensor<9xf32>", NEGATIVE_INFINITY, "f32"),
        ("where", "tensor<9xi64>", "0", "i64"),
    ):
        body.lines.append(
            f"%{name}0 = tensor.empty() : {type_}\n%{name}1 = arith.constant {start} : {element}"
        )
        body.lines.append(
            f"%{name} = linalg.fill ins(%{name}1 : {element}) outs(%{name}0 : {type_}) -> {type_}"
        )
    body.lines.append(f"%am:2 = {text}")

    body.results = [T("%am#0", (9,), "f32"), T("%am#1", (9,), "i64")]
    value = torch.randn(9, 50)
    got = run(body, value)
    assert torch.equal(got[0], value.amax(1))
    assert torch.equal(got[1], value.argmax(1))


def test_cross_entropy_of_rows_and_its_mean(threads):
    """Log-softmax, the target's entry by position, and the mean over all rows: three levels of reduction."""
    rows, columns = 45, 130
    body = Body("cross_entropy")
    x, target = body.argument((rows, columns)), body.argument((rows,), "i64")
    m = body.reduce([x], "%r = arith.maximumf %0, %acc : f32", [1], NEGATIVE_INFINITY)
    code = "%d = arith.subf %0, %1 : f32\n%e = math.exp %d : f32\n%r = arith.addf %e, %acc : f32"
    s = body.reduce([x, (m, "d0")], code, [1], "0.0")
    pick = """%j = linalg.index 1 : index
        %k = arith.index_cast %j : index to i64
        %hit = arith.cmpi eq, %k, %1 : i64
        %z = arith.constant 0.0 : f32
        %p = arith.select %hit, %0, %z : f32
        %r = arith.addf %p, %acc : f32"""
    chosen = body.reduce([x, (target, "d0")], pick, [1], "0.0")
    loss = body.map(
        [m, s, chosen], "%l = math.log %1 : f32\n%a = arith.addf %0, %l : f32\n%r = arith.subf %a, %2 : f32"
    )
    total = body.reduce([loss], ADD, [0], "0.0")
    body.results = [body.map([total], constants("%r = arith.divf %0, %n : f32", n=float(rows))), loss]
    value, classes = 3 * torch.randn(rows, columns), torch.randint(0, columns, (rows,))
    got = run(body, value, classes)
    close(got[0], F.cross_entropy(value.double(), classes))
    close(got[1], F.cross_entropy(value.double(), classes, reduction="none"))


def test_clip_by_the_norm_of_several_tensors(threads):
    """A sum over each tensor, joined to one factor, applied to all: nests that wait for each other."""
    shapes = [(40, 30), (7,), (200,)]
    body = Body("clip")
    arguments = [body.argument(s) for s in shapes]
    square = "%q = arith.mulf %0, %0 : f32\n%r = arith.addf %q, %acc : f32"
    sums = [body.reduce([a], square, list(range(len(a.shape))), "0.0") for a in arguments]
    code = "%a = arith.addf %0, %1 : f32\n%b = arith.addf %a, %2 : f32\n%r = math.sqrt %b : f32"
    norm = body.map(sums, code)
    body.results = [norm, *(body.map([a, (norm, "")], "%r = arith.divf %0, %1 : f32") for a in arguments)]
    values = [torch.randn(s) for s in shapes]
    got = run(body, *values)
    exact = torch.cat([v.double().flatten() for v in values]).norm()
    close(got[0], exact)
    for one, value in zip(got[1:], values, strict=True):
        close(one, value.double() / exact)


def test_long_sums_keep_their_precision(threads):
    """Terms of one sign, added up in blocks: an error of a few dozen eps, not of thousands."""
    body = Body("long")
    x = body.argument((20000, 40))
    body.results = [body.reduce([x], ADD, [0], "0.0"), body.reduce([x], ADD, [0, 1], "0.0")]
    value = torch.rand(20000, 40)
    rows, everything = run(body, value)
    exact = value.double().sum(0)
    assert ((rows - exact) / exact).abs().max() < 5e-6
    assert abs(everything.double() - exact.sum()) / exact.sum() < 5e-6


def test_group_norm_reshapes_around_the_reduction(threads):
    """(n, c, h) seen as (n, groups, c / groups, h): sums over the last two, then back."""
    n, groups, channels, h = 3, 4, 6, 11
    body = Body("group_norm")
    x = body.argument((n, groups * channels, h))
    wide = body.line(
        f"tensor.expand_shape {x.name} [[0], [1, 2], [3]] output_shape [{n}, {groups}, {channels}, {h}] : "
        f"{x.type} into {{type}}",
        (n, groups, channels, h),
        "f32",
    )
    mean = body.map(
        [body.reduce([wide], ADD, [2, 3], "0.0")],
        constants("%r = arith.divf %0, %n : f32", n=float(channels * h)),
    )
    centred = body.map([wide, (mean, "d0, d1")], "%r = arith.subf %0, %1 : f32")
    flat = body.line(
        f"tensor.collapse_shape {centred.name} [[0], [1, 2], [3]] : {centred.type} into {{type}}",
        x.shape,
        "f32",
    )
    scale = body.argument((groups * channels,))
    body.results = [body.map([flat, (scale, "d1")], "%r = arith.mulf %0, %1 : f32")]
    value, s = torch.randn(x.shape), torch.randn(groups * channels)
    (got,) = run(body, value, s)
    split = value.double().view(n, groups, channels, h)
    exact = (split - split.mean((2, 3), keepdim=True)).view(x.shape) * s.double()[:, None]
    close(got, exact)


CONFIGURATIONS = [
    "rows = 1 : i64",
    "rows = 1000 : i64, block = 7 : i64",
    "recompute_cost = 1 : i64",
    "recompute_cost = 999 : i64",
    "piece = 16 : i64, far_bytes = 1 : i64",
    "piece = 25 : i64, far_bytes = 1 : i64",
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_the_configuration_changes_the_loops_and_not_the_values(config, threads):
    body, other = layer_norm_backward(37, 50), softmax(37, 50)
    body.config = other.config = f"{THREADED}, {config}"
    dy, x, mean, rstd, w = (
        torch.randn(37, 50),
        torch.randn(37, 50),
        torch.randn(37),
        torch.rand(37),
        torch.randn(50),
    )
    normal = (x.double() - mean.double()[:, None]) * rstd.double()[:, None]
    _, dw, db = compiled(body)(dy, x, mean, rstd, w)
    close(dw, (dy.double() * normal).sum(0), factor=4)
    close(db, dy.double().sum(0))
    close(compiled(other)(x)[0], x.double().softmax(-1))
