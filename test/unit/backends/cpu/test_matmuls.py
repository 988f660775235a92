"""Packed matmuls fused with ops before and after them, against f64."""

import pytest
import torch
import torch.nn.functional as F
from bodies import Body, T, compiled
from programs import ADD, constants

THREADED = "work_per_thread = 500 : i64"
DOT = "%p = arith.mulf %0, %1 : {0}\n%r = arith.addf %p, %acc : {0}"
SIZES = [(7, 127, 129), (127, 129, 7), (64, 128, 32), (2, 2, 1), (1, 127, 7), (127, 1, 7)]


def dot(
    body: Body,
    x: T,
    y: T,
    sizes: tuple[int, int, int],
    at=("d0, d2", "d2, d1"),
    code: str = "",
    element: str = "f32",
) -> T:
    """The sum over d2 of x * y, read at ``at``, over d0 and d1."""
    return body.reduce(
        [(x, at[0]), (y, at[1])], code or DOT.format(element), [2], "0.0", element, shape=sizes
    )


def close(got: torch.Tensor, exact: torch.Tensor, terms: int, epsilon: float = 1e-7) -> None:
    """Within what ``terms`` roundings of standard normal products can be off."""
    torch.testing.assert_close(
        got.double(), exact, rtol=8 * epsilon, atol=epsilon * (8 + 4 * terms), equal_nan=True
    )


def run(body: Body, *tensors: torch.Tensor, config: str = THREADED) -> tuple[torch.Tensor, ...]:
    body.config = config
    return compiled(body)(*tensors)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_operands_as_they_lie(sizes, turned, threads):
    m, n, k = sizes
    x, y = (torch.randn(s) for s in ((m, k), (k, n)))
    shapes = [
        tuple(reversed(t.shape)) if turn else tuple(t.shape) for t, turn in zip((x, y), turned, strict=True)
    ]
    body = Body("product")
    a, b = map(body.argument, shapes)
    body.results = [
        dot(body, a, b, sizes, ("d2, d0" if turned[0] else "d0, d2", "d1, d2" if turned[1] else "d2, d1"))
    ]
    given = [t.t().contiguous() if turn else t for t, turn in zip((x, y), turned, strict=True)]
    close(run(body, *given)[0], x.double() @ y.double(), k)


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty_matrices(sizes):
    m, n, k = sizes
    body = Body("product")
    a, b = body.argument((m, k)), body.argument((k, n))
    body.results = [dot(body, a, b, sizes)]
    assert torch.equal(run(body, torch.randn(m, k), torch.randn(k, n))[0], torch.zeros(m, n))


BLOCKS = "tile_m = 4 : i64, tile_n = 16 : i64, block_m = 10 : i64, block_n = 40 : i64, block_k = 30 : i64"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", [(65, 131, 97), (3, 100, 100), (100, 17, 33)])
def test_blocks_that_do_not_divide(sizes, turned, rows, threads):
    m, n, k = sizes
    x, y = torch.randn(m, k), torch.randn(k, n)
    body = Body("product")
    a, b = body.argument((m, k)), body.argument((n, k) if turned else (k, n))
    body.results = [dot(body, a, b, sizes, ("d0, d2", "d1, d2" if turned else "d2, d1"))]
    config = f"{BLOCKS}, {THREADED}".replace("tile_m = 4", f"tile_m = {rows}")
    (got,) = run(body, x, y.t().contiguous() if turned else y, config=config)
    close(got, x.double() @ y.double(), k)


def test_a_result_that_is_written_turned(threads):
    m, n, k = 33, 50, 20
    x, y = torch.randn(m, k), torch.randn(k, n)
    body = Body("product")
    a, b = body.argument((m, k)), body.argument((k, n))
    product = dot(body, a, b, (m, n, k))
    body.results = [body.map([(product, "d1, d0")], "%r = arith.negf %0 : f32", shape=(n, m))]
    close(run(body, x, y)[0], -(x.double() @ y.double()).t(), k)


@pytest.mark.parametrize("count", [2, 40])
def test_batches(count, threads):
    """A few matmuls are cut over the threads each, many are handed out whole."""
    x, y = torch.randn(count, 9, 17), torch.randn(count, 17, 35)
    body = Body("products")
    a, b = body.argument(x.shape), body.argument(y.shape)
    at = [(a, "d0, d1, d3"), (b, "d0, d3, d2")]
    body.results = [body.reduce(at, DOT.format("f32"), [3], "0.0", shape=(count, 9, 35, 17))]
    close(run(body, x, y)[0], x.double() @ y.double(), 17)


def test_heads_are_two_axes():
    """q k^T of [batch, length, heads, size] tensors: the batch is two axes that are not neighbours."""
    q, k = torch.randn(2, 9, 3, 8), torch.randn(2, 11, 3, 8)
    body = Body("scores")
    a, b = body.argument(q.shape), body.argument(k.shape)
    at = [(a, "d0, d2, d1, d4"), (b, "d0, d3, d1, d4")]
    body.results = [body.reduce(at, DOT.format("f32"), [4], "0.0", shape=(2, 3, 9, 11, 8))]
    close(run(body, q, k)[0], torch.einsum("bshd,bthd->bhst", q.double(), k.double()), 8)


def test_f64(threads):
    x, y = torch.randn(17, 33, dtype=torch.float64), torch.randn(33, 21, dtype=torch.float64)
    body = Body("product")
    a, b = body.argument(x.shape, "f64"), body.argument(y.shape, "f64")
    body.results = [dot(body, a, b, (17, 21, 33), element="f64")]
    close(run(body, x, y)[0], x @ y, 33, 1e-15)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("element", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False)], ids=str)
@pytest.mark.parametrize("k", [129, 130])
def test_narrow_operands_are_added_up_in_f32(element, dtype, turned, k, threads):
    """With an even number of terms, bf16 goes in pairs where the machine has an instruction for that."""
    m, n = 31, 70
    x, y = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
    given = [t.t().contiguous() if turn else t for t, turn in zip((x, y), turned, strict=True)]
    body = Body("product")
    a, b = (body.argument(t.shape, element) for t in given)
    at = ("d2, d0" if turned[0] else "d0, d2", "d1, d2" if turned[1] else "d2, d1")
    widen = "".join(f"%{t} = arith.extf %{i} : {element} to f32\n" for i, t in enumerate("ab"))
    code = widen + DOT.format("f32").replace("%0, %1", "%a, %b")
    product = dot(body, a, b, (m, n, k), at, code)
    body.results = [body.map([product], f"%r = arith.truncf %0 : f32 to {element}", element), product]
    rounded, whole = run(body, *given)
    close(whole, x.double() @ y.double(), k)
    assert torch.equal(rounded, whole.to(dtype))


def test_a_scale_of_rows_before(threads):
    """A norm's scale of the left operand, and of the right one's columns: computed while packing."""
    m, n, k = 50, 67, 40
    x, w, rows, columns = torch.randn(m, k), torch.randn(n, k), torch.rand(m) + 0.5, torch.rand(k) + 0.5
    body = Body("scaled")
    a, b, s, c = body.argument((m, k)), body.argument((n, k)), body.argument((m,)), body.argument((k,))
    scales = "%u = arith.mulf %0, %2 : f32\n%v = arith.mulf %1, %3 : f32\n"
    code = scales + DOT.format("f32").replace("%0, %1", "%u, %v")
    read = [(a, "d0, d2"), (b, "d1, d2"), (s, "d0"), (c, "d2")]
    body.results = [body.reduce(read, code, [2], "0.0", shape=(m, n, k))]
    exact = (x.double() * rows.double()[:, None]) @ (w.double() * columns.double()).t()
    close(run(body, x, w, rows, columns)[0], exact, 2 * k)


GELU = constants(
    """%t = arith.addf %0, %1 : f32
    %u = arith.mulf %t, %root : f32
    %v = math.erf %u : f32
    %p = arith.addf %v, %one : f32
    %h = arith.mulf %t, %half : f32
    %g = arith.mulf %h, %p : f32
    %r = arith.addf %g, %2 : f32""",
    root=0.7071067811865476,
    one=1.0,
    half=0.5,
)


def epilogue(m: int, n: int, k: int) -> Body:
    """gelu(x w^T + bias) + residual, and the product itself."""
    body = Body("epilogue")
    x, w, bias, residual = (body.argument(s) for s in ((m, k), (n, k), (n,), (m, n)))
    product = dot(body, x, w, (m, n, k), ("d0, d2", "d1, d2"))
    body.results = [body.map([product, (bias, "d1"), residual], GELU), product]
    return body


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sizes", [(7, 129, 127), (64, 64, 64), (130, 1100, 20)])
@pytest.mark.parametrize("config", [THREADED, f"{BLOCKS}, {THREADED}"], ids=["default", "small blocks"])
def test_two_results(sizes, config, threads):
    m, n, k = sizes
    x, w, bias, residual = torch.randn(m, k), torch.randn(n, k), torch.randn(n), torch.randn(m, n)
    made, product = run(epilogue(m, n, k), x, w, bias, residual, config=config)
    exact = x.double() @ w.double().t()
    close(product, exact, k)
    close(made, F.gelu(exact + bias) + residual, k)


def test_a_matmul_of_a_matmul_and_what_sums_its_rows(threads):
    """Nests of three kinds in one kernel, each of which reads all that the one before wrote."""
    x, y, z = torch.randn(20, 30), torch.randn(30, 40), torch.randn(40, 50)
    body = Body("chain")
    a, b, c = (body.argument(t.shape) for t in (x, y, z))
    first = dot(body, a, b, (20, 40, 30))
    second = dot(body, first, c, (20, 50, 40))
    body.results = [body.reduce([second], ADD, [1], "0.0"), second]
    total, product = run(body, x, y, z)
    exact = x.double() @ y.double() @ z.double()
    close(product, exact, 30 * 40)
    close(total, exact.sum(1), 30 * 40 * 5)


def test_not_a_number_stays_where_it_is(threads):
    x, y = torch.randn(13, 20), torch.randn(20, 70)
    x[12, 3], y[4, 69] = float("nan"), float("inf")
    body = Body("product")
    a, b = body.argument(x.shape), body.argument(y.shape)
    body.results = [dot(body, a, b, (13, 70, 20))]
    close(run(body, x, y)[0], x.double() @ y.double(), 20)


def test_a_sum_that_starts_elsewhere_than_at_nothing():
    """An init other than 0 is added once, not once in each block of terms."""
    x, y = torch.randn(10, 70), torch.randn(70, 20)
    body = Body("product")
    a, b = body.argument(x.shape), body.argument(y.shape)
    body.results = [
        body.reduce([(a, "d0, d2"), (b, "d2, d1")], DOT.format("f32"), [2], "3.0", shape=(10, 20, 70))
    ]
    close(run(body, x, y, config=BLOCKS)[0], 3 + x.double() @ y.double(), 70)


IN_PLACE = "left = 2 : i64, right = 2 : i64, tile_m = 4 : i64, tile_n = 32 : i64"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False)], ids=str)
@pytest.mark.parametrize("sizes", [(64, 128, 97), (64, 128, 96), (63, 128, 40), (64, 130, 40)])
def test_operands_are_read_where_they_lie(sizes, turned, element, threads):
    """Where they cannot be (the other order; of the right one, tiles beyond the last column and pairs), they
    are packed.
    """
    m, n, k = sizes
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[element]
    x, y = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
    given = [t.t().contiguous() if turn else t for t, turn in zip((x, y), turned, strict=True)]
    body = Body("product")
    a, b = (body.argument(t.shape, element) for t in given)
    at = ("d2, d0" if turned[0] else "d0, d2", "d1, d2" if turned[1] else "d2, d1")
    widen = (
        ""
        if element == "f32"
        else "".join(f"%{t} = arith.extf %{i} : {element} to f32\n" for i, t in enumerate("ab"))
    )
    terms = "%p = arith.mulf {} : f32\n%r = arith.addf %p, %acc : f32".format("%a, %b" if widen else "%0, %1")
    body.results = [dot(body, a, b, sizes, at, widen + terms)]
    (got,) = run(
        body,
        *given,
        config=f"{IN_PLACE}, block_m = 16 : i64, block_n = 64 : i64, block_k = 32 : i64, {THREADED}",
    )
    close(got, x.double() @ y.double(), k)


@pytest.mark.parametrize("share", [1, 2, 3])
@pytest.mark.parametrize("count", [2, 20])
def test_threads_share_rows_columns_or_matmuls(count, share, threads):
    x, y = torch.randn(count, 64, 17), torch.randn(count, 17, 96)
    body = Body("products")
    a, b = body.argument(x.shape), body.argument(y.shape)
    at = [(a, "d0, d1, d3"), (b, "d0, d3, d2")]
    body.results = [body.reduce(at, DOT.format("f32"), [3], "0.0", shape=(count, 64, 96, 17))]
    close(
        run(body, x, y, config=f"{IN_PLACE}, share = {share} : i64, {THREADED}")[0],
        x.double() @ y.double(),
        17,
    )


def test_rows_of_two_axes_in_place(threads):
    """Heads of one projection: its rows are two axes that are one."""
    x, y = torch.randn(64, 3, 40), torch.randn(40, 128)
    body = Body("product")
    a, b = body.argument(x.shape), body.argument(y.shape)
    at = [(a, "d0, d1, d3"), (b, "d3, d2")]
    body.results = [body.reduce(at, DOT.format("f32"), [3], "0.0", shape=(64, 3, 128, 40))]
    close(
        run(body, x, y, config=f"{IN_PLACE}, {THREADED}")[0],
        torch.einsum("ihk,kn->ihn", x.double(), y.double()),
        40,
    )
