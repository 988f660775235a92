"""Pointwise kernels: shapes, broadcasts, views, dtypes, several results."""

import pytest
import torch
import torch.nn.functional as F
from bodies import NAMES, Body, compiled
from programs import adamw, constants, gelu_chain, tanh_gelu_chain

SIZES = [(1, 1), (1, 7), (7, 1), (7, 127), (127, 129), (129, 4096), (0, 5), (5, 0)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("chain, approximate", [(gelu_chain, "none"), (tanh_gelu_chain, "tanh")])
def test_gelu_chain(chain, approximate, shape, threads):
    x, r = torch.randn(shape), torch.randn(shape)
    w, b = torch.randn(shape[1]), torch.randn(shape[1])
    (got,) = compiled(chain(*shape))(x, w, b, r)
    exact = F.gelu(x.double() * w.double() + b.double(), approximate=approximate) + r.double()
    torch.testing.assert_close(got.double(), exact, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3, 5), (2, 1, 5, 1, 4)])
def test_any_rank(shape):
    body = Body("square")
    x = body.argument(shape)
    body.results = [body.map([x], "%r = arith.mulf %0, %0 : f32")]
    value = torch.randn(shape)
    (got,) = compiled(body)(value)
    assert torch.equal(got, value * value)


def test_broadcasts_over_every_dim(threads):
    shape = (6, 5, 4, 33)
    body = Body("broadcasts")
    x = body.argument(shape)
    others = [
        (body.argument(()), ""),
        (body.argument((33,)), "d3"),
        (body.argument((6, 4)), "d0, d2"),
        (body.argument((5,)), "d1"),
    ]
    code = (
        "%a = arith.mulf %0, %1 : f32\n%b = arith.addf %a, %2 : f32\n%c = arith.mulf %b, %3 : f32\n%r = "
        "arith.addf %c, %4 : f32"
    )
    body.results = [body.map([x, *others], code)]
    a, s, c, d, e = torch.randn(shape), torch.randn(()), torch.randn(33), torch.randn(6, 4), torch.randn(5)
    (got,) = compiled(body)(a, s, c, d, e)
    assert torch.equal(
        got, (a * s + c) * d[:, None, :, None] + e[:, None, None]
    )  # to the bit: nothing is contracted


def test_large_broadcast_over_threads(threads):
    body = Body("bias")
    x, b = body.argument((3, 64, 1000)), body.argument((64,))
    body.results = [body.map([x, (b, "d1")], "%r = arith.addf %0, %1 : f32")]
    body.config = "work_per_thread = 1000 : i64"
    a, c = torch.randn(3, 64, 1000), torch.randn(64)
    assert torch.equal(compiled(body)(a, c)[0], a + c[:, None])


def test_transposed_and_offset_reads():
    body = Body("views")
    x, y = body.argument((17, 30)), body.argument((26, 20))
    right = sliced(body, x, "0, 3", "17, 26", "1, 1", (17, 26))
    low = sliced(body, y, "0, 2", "26, 17", "1, 1", (26, 17))
    body.results = [body.map([right, (low, "d1, d0")], "%r = arith.addf %0, %1 : f32")]
    a, b = torch.randn(17, 30), torch.randn(26, 20)
    (got,) = compiled(body)(a, b)
    assert torch.equal(got, a[:, 3:29] + b[:, 2:19].T)


def sliced(body: Body, x, offsets, sizes, steps, shape):
    """``tensor.extract_slice``."""
    return body.line(
        f"tensor.extract_slice {x.name}[{offsets}] [{sizes}] [{steps}] : {x.type} to {{type}}",
        shape,
        x.element,
    )


def test_slices(threads):
    """Of an input, of a computed value; with steps; as a result; under a view that is no index map."""
    body = Body("slices")
    x = body.argument((6, 8, 10))
    e = body.map([x], "%r = math.exp %0 : f32")
    low = sliced(body, e, "0, 2, 0", "6, 4, 5", "1, 1, 2", (6, 4, 5))
    high = sliced(body, x, "0, 4, 5", "6, 4, 5", "1, 1, 1", (6, 4, 5))
    row = sliced(body, e, "3, 1, 0", "1, 1, 10", "1, 1, 1", (1, 1, 10))
    flat = body.line(
        f"tensor.collapse_shape {low.name} [[0, 1], [2]] : {low.type} into {{type}}", (24, 5), "f32"
    )
    body.results = [
        body.map([low, high], "%r = arith.addf %0, %1 : f32"),
        row,
        body.map([flat], "%r = arith.negf %0 : f32"),
    ]
    a = torch.randn(6, 8, 10)
    got = compiled(body)(a)
    wanted = a.exp()[:, 2:6, ::2]
    torch.testing.assert_close(got[0], wanted + a[:, 4:, 5:])
    torch.testing.assert_close(got[1], a.exp()[3:4, 1:2])
    torch.testing.assert_close(got[2], -wanted.reshape(24, 5))


def test_offset_read_of_a_computed_value():
    """A value that is not kept in memory is computed at the shifted index."""
    body = Body("shifted")
    x, y = body.argument((50,)), body.argument((49,))
    e = body.map([x], "%r = math.exp %0 : f32")
    shifted = sliced(body, e, "1", "49", "1", (49,))
    body.results = [body.map([y, shifted], "%r = arith.subf %1, %0 : f32")]
    a = torch.randn(50)
    torch.testing.assert_close(compiled(body)(a, a[:49].exp())[0], a.exp().diff())


def test_positions():
    body = Body("positions")
    x = body.argument((6, 35))
    code = """%i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %keep = arith.cmpi sle, %j, %i : index
        %z = arith.constant 0.0 : f32
        %r = arith.select %keep, %0, %z : f32"""
    body.results = [body.map([x], code)]
    a = torch.randn(6, 35)
    assert torch.equal(compiled(body)(a)[0], a.tril())


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "f16"])
def test_sum_of_floats_is_exact(element):
    dtype = {name: dtype for dtype, name in NAMES.items()}[element]
    body = Body(f"add_{element}")
    x, y = body.argument((7, 129), element), body.argument((7, 129), element)
    body.results = [body.map([x, y], f"%r = arith.addf %0, %1 : {element}")]
    a, b = torch.randn(7, 129).to(dtype), torch.randn(7, 129).to(dtype)
    a[0, :4] = torch.tensor([float("inf"), float("nan"), 0.0, -0.0])
    got = compiled(body)(a, b)[0]
    torch.testing.assert_close(got, a + b, rtol=0, atol=0, equal_nan=True)


def test_dtypes_mixed():
    """bf16 computed in f32 and rounded at the end; integers, truth values in bytes, and a comparison."""
    body = Body("mixed")
    x, y, mask = body.argument((5, 127), "bf16"), body.argument((5, 127)), body.argument((5, 127), "i8")
    code = """%w = arith.extf %0 : bf16 to f32
        %s = arith.mulf %w, %1 : f32
        %zero = arith.constant 0 : i8
        %on = arith.cmpi ne, %2, %zero : i8
        %z = arith.constant 0.0 : f32
        %k = arith.select %on, %s, %z : f32
        %r = arith.truncf %k : f32 to bf16"""
    rounded = body.map([x, y, mask], code, element="bf16")
    large = body.map(
        [y],
        "%one = arith.constant 1.0 : f32\n%c = arith.cmpf ogt, %0, %one : f32\n%r = arith.extui %c : i1 "
        "to i8",
        element="i8",
    )
    number = body.map(
        [mask, y],
        "%w = arith.extsi %0 : i8 to i64\n%t = arith.fptosi %1 : f32 to i64\n%r = arith.addi %w, %t : i64",
        element="i64",
    )
    body.results = [rounded, large, number]
    a, b, m = torch.randn(5, 127).bfloat16(), 3 * torch.randn(5, 127), torch.rand(5, 127) > 0.5
    got = compiled(body)(a, b, m)
    assert torch.equal(got[0], torch.where(m, a.float() * b, 0).bfloat16())
    assert torch.equal(got[1].bool(), b > 1)
    assert torch.equal(got[2], m.long() + b.long())


def test_bf16_rounds_to_even_and_keeps_nan_and_subnormals():
    body = Body("round")
    body.results = [body.map([body.argument((65536,))], "%r = arith.truncf %0 : f32 to bf16", element="bf16")]
    bits = torch.arange(65536, dtype=torch.int32) * 65536 + torch.randint(
        0, 65536, (65536,), dtype=torch.int32
    )
    x = bits.view(torch.float32)
    (got,) = compiled(body)(x)
    torch.testing.assert_close(got, x.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_results_that_are_inputs_constants_views_and_twins():
    body = Body("plain")
    x = body.argument((4, 6))
    square = body.map([x], "%r = arith.mulf %0, %0 : f32")
    flat = body.line(
        f"tensor.collapse_shape {square.name} [[0, 1]] : {square.type} into {{type}}", (24,), "f32"
    )
    body.lines.append("%seven = arith.constant 7.0 : f32")
    empty = body.line("tensor.empty() : {type}", (3, 3), "f32")
    sevens = body.line(
        f"linalg.fill ins(%seven : f32) outs({empty.name} : {empty.type}) -> {{type}}", (3, 3), "f32"
    )
    body.results = [x, square, square, flat, sevens]
    a = torch.randn(4, 6)
    got = compiled(body)(a)
    assert torch.equal(got[0], a)
    assert torch.equal(got[1], a * a)
    assert torch.equal(got[2], a * a)
    assert torch.equal(got[3], (a * a).flatten())
    assert torch.equal(got[4], torch.full((3, 3), 7.0))


def test_a_view_between_ops_that_is_no_index_map():
    """(6, 4) flattened and cut as (8, 3): the value in between must lie in memory."""
    body = Body("regrouped")
    x, w = body.argument((6, 4)), body.argument((8, 3))
    e = body.map([x], "%r = math.exp %0 : f32")
    flat = body.line(f"tensor.collapse_shape {e.name} [[0, 1]] : {e.type} into {{type}}", (24,), "f32")
    cut = body.line(
        f"tensor.expand_shape {flat.name} [[0, 1]] output_shape [8, 3] : {flat.type} into {{type}}",
        (8, 3),
        "f32",
    )
    body.results = [body.map([cut, w], "%r = arith.mulf %0, %1 : f32")]
    a, b = torch.randn(6, 4), torch.randn(8, 3)
    torch.testing.assert_close(compiled(body)(a, b)[0], a.exp().view(8, 3) * b)


def test_inputs_need_not_be_contiguous():
    body = Body("square_t")
    body.results = [body.map([body.argument((5, 3))], "%r = arith.mulf %0, %0 : f32")]
    a = torch.randn(3, 5).T
    assert torch.equal(compiled(body)(a)[0], a * a)


@pytest.mark.parametrize("shapes", [[(3,)], [(17,), (129, 33), (), (1, 7)]])
def test_adamw_of_several_parameters(shapes, threads):
    body = adamw(shapes)
    body.config = "work_per_thread = 500 : i64"
    tensors = [t for s in shapes for t in (torch.randn(s), torch.randn(s), torch.randn(s), torch.rand(s))]
    got = compiled(body)(torch.tensor(3.0), *tensors)
    for i, shape in enumerate(shapes):
        p = torch.nn.Parameter(tensors[4 * i].double())
        p.grad = tensors[4 * i + 1].double()
        optimizer = torch.optim.AdamW([p], lr=1e-3)
        optimizer.state[p] = {
            "step": torch.tensor(2.0, dtype=torch.float64),
            "exp_avg": tensors[4 * i + 2].double(),
            "exp_avg_sq": tensors[4 * i + 3].double(),
        }
        optimizer.step()
        wanted = [p.detach(), optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"]]
        for result, exact in zip(got[3 * i : 3 * i + 3], wanted, strict=True):
            assert result.shape == shape
            torch.testing.assert_close(result.double(), exact, rtol=1e-6, atol=1e-6)


def test_nan_and_infinity_pass_through():
    body = Body("gelu_edges")
    code = (
        "%u = arith.mulf %0, %root : f32\n%v = math.erf %u : f32\n%p = arith.addf %v, %one : f32\n%h = "
        "arith.mulf %0, %half : f32\n%r = arith.mulf %h, %p : f32"
    )
    body.results = [
        body.map([body.argument((40,))], constants(code, root=0.7071067811865476, one=1.0, half=0.5))
    ]
    a = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0] * 8)
    torch.testing.assert_close(
        compiled(body)(a)[0],
        0.5 * a * (1 + torch.erf(0.7071067811865476 * a)),
        rtol=0,
        atol=0,
        equal_nan=True,
    )


@pytest.mark.parametrize("shape", [(64, 128), (65, 130), (3, 1000)])
def test_transposed_reads_in_tiles(shape, threads):
    body = Body("tiles")
    body.config = "work_per_thread = 500 : i64"
    x, y = body.argument(shape), body.argument(shape[::-1])
    body.results = [body.map([x, (y, "d1, d0")], "%r = arith.addf %0, %1 : f32")]
    a, b = torch.randn(shape), torch.randn(shape[::-1])
    assert torch.equal(compiled(body)(a, b)[0], a + b.T)


def test_a_chain_of_thousands_of_ops():
    body = Body("deep")
    x = body.argument((20,))
    value = x
    for _ in range(1500):
        value = body.map([value], "%c = arith.constant 0.5 : f32\n%r = arith.addf %0, %c : f32")
    body.results = [value]
    assert torch.equal(compiled(body)(torch.arange(20.0))[0], torch.arange(20.0) + 750)


def test_no_inputs():
    body = Body("made")
    body.lines.append("%seven = arith.constant 7.0 : f32")
    empty = body.line("tensor.empty() : {type}", (3, 3), "f32")
    made = body.line(
        f"linalg.fill ins(%seven : f32) outs({empty.name} : {empty.type}) -> {{type}}", (3, 3), "f32"
    )
    body.results = [
        made,
        body.map([made], "%r = math.exp %0 : f32"),
        body.line("arith.constant dense<2> : {type}", (), "i64"),
    ]
    got = compiled(body)()
    assert torch.equal(got[0], torch.full((3, 3), 7.0))
    torch.testing.assert_close(got[1], torch.full((3, 3), 7.0).exp())
    assert got[2].item() == 2
